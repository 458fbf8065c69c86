/* Tests the promises of holdfast.h with two threads. Prints the condition that does not hold, and fails. */
#define _GNU_SOURCE
#include <holdfast.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__, __func__, #condition);                  \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

/* Runs body on two threads. */
static void on_two_threads(void *(*body)(void *))
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static holdfast_lock_t in_static = HOLDFAST_LOCK_INIT;
static long count;

enum { INCREMENTS = 200000, PATIENT_ROUNDS = 20 };

static void *increment(void *unused)
{
    for (int i = 0; i < INCREMENTS; i++) {
        holdfast_lock_lock(&in_static);
        count++;
        holdfast_lock_unlock(&in_static);
    }
    return unused;
}

static void exclusion(void)
{
    count = 0;
    on_two_threads(increment);
    CHECK(count == 2L * INCREMENTS);
}

/* Holds the lock for so long that a waiting thread halts and must be woken. */
static void *hold(void *unused)
{
    for (int i = 0; i < PATIENT_ROUNDS; i++) {
        holdfast_lock_lock(&in_static);
        count++;
        usleep(2000);
        holdfast_lock_unlock(&in_static);
    }
    return unused;
}

static void sleepers_are_woken(void)
{
    count = 0;
    on_two_threads(hold);
    CHECK(count == 2L * PATIENT_ROUNDS);
}

static void initialized_is_free(void)
{
    holdfast_lock_t made, written = HOLDFAST_LOCK_INIT;
    memset(&made, 0xff, sizeof made);
    holdfast_lock_init(&made);
    CHECK(memcmp(&made, &written, sizeof made) == 0);
    CHECK(holdfast_lock_trylock(&made));
    holdfast_lock_unlock(&made);
}

static void *try(void *taken)
{
    *(bool *)taken = holdfast_lock_trylock(&in_static);
    if (*(bool *)taken)
        holdfast_lock_unlock(&in_static);
    return NULL;
}

static bool taken_by_another(void)
{
    pthread_t other;
    bool taken = false;
    CHECK(pthread_create(&other, NULL, try, &taken) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    return taken;
}

static void trylock(void)
{
    CHECK(taken_by_another());
    CHECK(holdfast_lock_trylock(&in_static));
    CHECK(!holdfast_lock_trylock(&in_static));
    CHECK(!taken_by_another());
    holdfast_lock_unlock(&in_static);
    CHECK(taken_by_another());
}

/* A lock on a page of its own, which the second thread that has used it unmaps: a later access by the first faults. */
struct page {
    holdfast_lock_t lock;
    int uses;
};

enum { PAGES = 2000 };
static struct page *pages[PAGES];

static void *use_each(void *unused)
{
    for (int i = 0; i < PAGES; i++) {
        struct page *page = pages[i];
        holdfast_lock_lock(&page->lock);
        bool last = ++page->uses == 2;
        holdfast_lock_unlock(&page->lock);
        if (last)
            CHECK(munmap(page, sizeof *page) == 0);
    }
    return unused;
}

static void freed_right_after_unlock(void)
{
    for (int i = 0; i < PAGES; i++) {
        pages[i] = mmap(NULL, sizeof *pages[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages[i] != MAP_FAILED);
    }
    on_two_threads(use_each);
}

/* Runs body in a child process and returns its exit status. */
static int status_of_child(void (*body)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void children_use_locks(void)
{
    exclusion();
    sleepers_are_woken();
}

static void unlock_of_a_free_lock(void)
{
    const struct rlimit no_core = { 0, 0 };
    setrlimit(RLIMIT_CORE, &no_core);
    fclose(stderr);
    close(STDERR_FILENO);
    holdfast_lock_unlock(&in_static);
}

int main(void)
{
    initialized_is_free();
    trylock();
    exclusion();
    sleepers_are_woken();
    freed_right_after_unlock();
    CHECK(status_of_child(children_use_locks) == 0);
    int misused = status_of_child(unlock_of_a_free_lock);
    CHECK(WIFSIGNALED(misused) && WTERMSIG(misused) == SIGABRT);
    puts("all kept");
    return 0;
}
