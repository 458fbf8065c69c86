/* Tests what holdfast.h promises of timed waits, the reader-writer lock and the condition variable. */
#define _GNU_SOURCE
#include <holdfast.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__, __func__, #condition);                  \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

enum { THREADS = 6, ROUNDS = 3000 };

static void on_threads(int count, void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static struct timespec in_ms(long ms)
{
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    time.tv_nsec += ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static bool is_past(struct timespec time)
{
    struct timespec now = in_ms(0);
    return now.tv_sec > time.tv_sec || (now.tv_sec == time.tv_sec && now.tv_nsec >= time.tv_nsec);
}

static holdfast_lock_t lock = HOLDFAST_LOCK_INIT;
static holdfast_rwlock_t rwlock = HOLDFAST_RWLOCK_INIT;
static holdfast_cond_t changed = HOLDFAST_COND_INIT;

/* What another thread finds: which attempts succeed while the main thread holds the lock. */
static const struct timespec never = { 0, -1 };
static bool gets_lock, gets_read, gets_write;

static void *try_each(void *unused)
{
    struct timespec soon = in_ms(20);
    gets_lock = holdfast_lock_timedlock(&lock, &soon);
    CHECK(gets_lock || is_past(soon));
    if (gets_lock)
        holdfast_lock_unlock(&lock);
    CHECK(holdfast_lock_timedlock(&lock, &never) == gets_lock);
    if (gets_lock)
        holdfast_lock_unlock(&lock);

    soon = in_ms(20);
    gets_read = holdfast_rwlock_timedrdlock(&rwlock, &soon);
    CHECK(gets_read || is_past(soon));
    if (gets_read)
        holdfast_rwlock_rdunlock(&rwlock);
    CHECK(holdfast_rwlock_tryrdlock(&rwlock) == gets_read);
    if (gets_read)
        holdfast_rwlock_rdunlock(&rwlock);

    soon = in_ms(20);
    gets_write = holdfast_rwlock_timedwrlock(&rwlock, &soon);
    CHECK(gets_write || is_past(soon));
    if (gets_write)
        holdfast_rwlock_wrunlock(&rwlock);
    CHECK(holdfast_rwlock_trywrlock(&rwlock) == gets_write);
    if (gets_write)
        holdfast_rwlock_wrunlock(&rwlock);
    return unused;
}

static void deadlines_end_waits(void)
{
    holdfast_lock_lock(&lock);
    holdfast_rwlock_wrlock(&rwlock);
    errno = 77;
    on_threads(1, try_each);
    CHECK(errno == 77 && !gets_lock && !gets_read && !gets_write);
    holdfast_rwlock_downgrade(&rwlock);
    on_threads(1, try_each);
    CHECK(!gets_lock && gets_read && !gets_write);
    holdfast_rwlock_rdunlock(&rwlock);
    holdfast_lock_unlock(&lock);
    on_threads(1, try_each);
    CHECK(gets_lock && gets_read && gets_write);
    /* Further away than any clock. */
    const struct timespec far = { INT64_MAX, 999999999 };
    CHECK(holdfast_lock_timedlock(&lock, &far));
    holdfast_lock_unlock(&lock);
}

static long first, second;

static void *read_and_write(void *number)
{
    for (int i = 0; i < ROUNDS; i++) {
        if ((i + (long)number) % 4 == 0) {
            holdfast_rwlock_wrlock(&rwlock);
            first++;
            for (volatile int pause = 0; pause < 100; pause++)
                ;
            second++;
            holdfast_rwlock_wrunlock(&rwlock);
        } else {
            holdfast_rwlock_rdlock(&rwlock);
            CHECK(first == second);
            holdfast_rwlock_rdunlock(&rwlock);
        }
    }
    return NULL;
}

static void readers_and_writers_exclude(void)
{
    on_threads(4, read_and_write);
    CHECK(first == ROUNDS && second == ROUNDS);
}

/* The threads take turns: each notifies all, so that the next one finds its turn. */
static long turn;

static void *take_turns(void *number)
{
    for (int i = 0; i < ROUNDS / 10; i++) {
        holdfast_lock_lock(&lock);
        errno = 77;
        while (turn % THREADS != (long)number)
            holdfast_cond_wait(&changed, &lock);
        CHECK(errno == 77);
        turn++;
        holdfast_cond_broadcast(&changed);
        holdfast_lock_unlock(&lock);
    }
    return NULL;
}

static void *wait_in_vain(void *unused)
{
    struct timespec soon = in_ms(20);
    holdfast_lock_lock(&lock);
    while (holdfast_cond_timedwait(&changed, &lock, &soon))
        ;
    CHECK(is_past(soon));
    CHECK(!holdfast_cond_timedwait(&changed, &lock, &never));
    holdfast_lock_unlock(&lock);
    return unused;
}

static void notifications_arrive(void)
{
    turn = 0;
    on_threads(THREADS, take_turns);
    CHECK(turn == THREADS * (ROUNDS / 10));
    on_threads(2, wait_in_vain);
}

/* Condition variables on pages of their own, which are unmapped right after they are destroyed. */
struct page {
    holdfast_cond_t cond;
};
static struct page *page;
static int waiting, gone;

static void *wait_on_page(void *unused)
{
    holdfast_lock_lock(&lock);
    struct page *mine = page;
    waiting++;
    while (page == mine)
        holdfast_cond_wait(&mine->cond, &lock);
    gone++;
    holdfast_lock_unlock(&lock);
    return unused;
}

static void freed_right_after_destroy(void)
{
    for (int i = 0; i < 60; i++) {
        pthread_t threads[THREADS];
        page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED);
        waiting = gone = 0;
        for (int j = 0; j < THREADS; j++)
            CHECK(pthread_create(&threads[j], NULL, wait_on_page, NULL) == 0);
        for (bool all = false; !all; usleep(100)) {
            holdfast_lock_lock(&lock);
            all = waiting == THREADS;
            holdfast_lock_unlock(&lock);
        }
        holdfast_lock_lock(&lock);
        struct page *old = page;
        page = NULL;
        holdfast_cond_broadcast(&old->cond);
        holdfast_cond_destroy(&old->cond);
        CHECK(munmap(old, sizeof *old) == 0);
        CHECK(gone == 0);
        holdfast_lock_unlock(&lock);
        for (int j = 0; j < THREADS; j++)
            CHECK(pthread_join(threads[j], NULL) == 0);
        CHECK(gone == THREADS);
    }
}

static void initialized_is_zero(void)
{
    static const char zeros[16];
    holdfast_rwlock_t made;
    holdfast_cond_t cond;
    memset(&made, 0xff, sizeof made);
    memset(&cond, 0xff, sizeof cond);
    holdfast_rwlock_init(&made);
    holdfast_cond_init(&cond);
    CHECK(memcmp(&made, zeros, sizeof made) == 0 && memcmp(&cond, zeros, sizeof cond) == 0);
    holdfast_cond_destroy(&cond);
}

int main(void)
{
    alarm(120);
    initialized_is_zero();
    deadlines_end_waits();
    readers_and_writers_exclude();
    notifications_arrive();
    freed_right_after_destroy();
    puts("all kept");
    return 0;
}
