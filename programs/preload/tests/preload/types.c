/*
 * Mutexes of every type, and condition variables, as their manuals describe them. Prints what does not hold, and fails.
 * With the argument "replaced" it also checks which mutexes are the C library's: only those record their owner.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__, __func__, #condition);                  \
            _exit(1);                                                                                          \
        }                                                                                                      \
    } while (0)

static bool replaced;

static struct timespec in_ms(clockid_t clock, long ms)
{
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    time.tv_nsec += ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void on_another_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* What another thread finds while the mutex is held, or free. */
static bool held;

static void *try_it(void *argument)
{
    pthread_mutex_t *mutex = argument;
    const struct timespec soon = in_ms(CLOCK_REALTIME, 5), later = in_ms(CLOCK_MONOTONIC, 5), never = { 0, -1 };
    int expected = held ? EBUSY : 0;
    errno = 77;
    CHECK(pthread_mutex_trylock(mutex) == expected);
    if (!held)
        CHECK(pthread_mutex_unlock(mutex) == 0);
    expected = held ? ETIMEDOUT : 0;
    CHECK(pthread_mutex_timedlock(mutex, &soon) == expected);
    if (!held)
        CHECK(pthread_mutex_unlock(mutex) == 0);
    CHECK(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &later) == expected);
    if (!held)
        CHECK(pthread_mutex_unlock(mutex) == 0);
    CHECK(!held || pthread_mutex_timedlock(mutex, &never) == EINVAL);
    CHECK(errno == 77);
    return NULL;
}

static void check_mutex(pthread_mutex_t *mutex, bool is_ours)
{
    CHECK(pthread_mutex_lock(mutex) == 0);
    if (replaced)
        CHECK((mutex->__data.__owner == 0) == is_ours);
    held = true;
    on_another_thread(try_it, mutex);
    CHECK(pthread_mutex_unlock(mutex) == 0);
    held = false;
    on_another_thread(try_it, mutex);
    CHECK(pthread_mutex_clocklock(mutex, CLOCK_PROCESS_CPUTIME_ID, &(struct timespec){ 0, 0 }) == EINVAL);
}

static void *notify(void *argument);
static bool notified;
static pthread_mutex_t *waits_with;

/* A condition variable together with a mutex of any type. */
static void check_cond(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock)
{
    pthread_t thread;
    struct timespec soon = in_ms(clock, 5), far = in_ms(clock, 600000);
    int before = errno = 77;
    CHECK(pthread_mutex_lock(mutex) == 0);
    CHECK(pthread_cond_timedwait(cond, mutex, &soon) == ETIMEDOUT);
    CHECK(pthread_cond_timedwait(cond, mutex, &(struct timespec){ 0, 1000000000 }) == EINVAL);
    CHECK(pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &(struct timespec){ 1, 0 }) == ETIMEDOUT);
    CHECK(pthread_cond_clockwait(cond, mutex, CLOCK_PROCESS_CPUTIME_ID, &far) == EINVAL);
    CHECK(pthread_mutex_trylock(mutex) == EBUSY || pthread_mutex_unlock(mutex) == 0);
    for (int i = 0; i < 4; i++) {
        notified = false;
        waits_with = mutex;
        CHECK(pthread_create(&thread, NULL, notify, cond) == 0);
        while (!notified)
            CHECK((i % 2 ? pthread_cond_wait(cond, mutex) : pthread_cond_timedwait(cond, mutex, &far)) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(errno == before);
    CHECK(pthread_mutex_unlock(mutex) == 0);
}

static void *notify(void *argument)
{
    static int calls;
    CHECK(pthread_mutex_lock(waits_with) == 0);
    notified = true;
    CHECK((calls++ % 2 ? pthread_cond_signal(argument) : pthread_cond_broadcast(argument)) == 0);
    CHECK(pthread_mutex_unlock(waits_with) == 0);
    return NULL;
}

static void check_types(void)
{
    static pthread_mutex_t fixed = PTHREAD_MUTEX_INITIALIZER, adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    static const struct {
        int type, robust, protocol, shared;
        bool ours;
    } kinds[] = {
        { PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE, true },
        { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE, true },
        { PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE, true },
        { PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE, false },
        { PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE, false },
        { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE, false },
        { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT, PTHREAD_PROCESS_PRIVATE, false },
        { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_SHARED, false },
    };
    check_mutex(&fixed, true);
    check_mutex(&adaptive, true);
    check_mutex(&recursive, false);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutex_t mutex;
        memset(&mutex, 0xff, sizeof mutex);
        CHECK(pthread_mutexattr_init(&attributes) == 0);
        CHECK(pthread_mutexattr_settype(&attributes, kinds[i].type) == 0);
        CHECK(pthread_mutexattr_setrobust(&attributes, kinds[i].robust) == 0);
        CHECK(pthread_mutexattr_setprotocol(&attributes, kinds[i].protocol) == 0);
        CHECK(pthread_mutexattr_setpshared(&attributes, kinds[i].shared) == 0);
        CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
        /* Priority inheritance has no monotonic clock before glibc 2.31 and Linux 5.14. */
        if (kinds[i].protocol == PTHREAD_PRIO_NONE)
            check_mutex(&mutex, kinds[i].ours);
        check_cond(&cond, &mutex, CLOCK_REALTIME);
        CHECK(pthread_mutex_lock(&mutex) == 0);
        /* glibc does not look at robust ones. */
        if (kinds[i].robust == PTHREAD_MUTEX_STALLED)
            CHECK(pthread_mutex_destroy(&mutex) == EBUSY);
        if (kinds[i].type == PTHREAD_MUTEX_RECURSIVE) {
            CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
        } else if (kinds[i].type == PTHREAD_MUTEX_ERRORCHECK) {
            CHECK(pthread_mutex_lock(&mutex) == EDEADLK);
        }
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        CHECK(pthread_mutex_destroy(&mutex) == 0);
        CHECK(pthread_mutex_lock(&mutex) == EINVAL || kinds[i].robust || kinds[i].protocol || kinds[i].shared);
    }
    CHECK(pthread_cond_destroy(&cond) == 0);
}

static void *die_with(void *mutex)
{
    CHECK(pthread_mutex_lock(mutex) == 0);
    return NULL;
}

static void check_robust(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
    on_another_thread(die_with, &mutex);
    CHECK(pthread_mutex_lock(&mutex) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
}

/* Two processes share a mutex and a condition variable. */
static void check_shared(void)
{
    struct shared {
        pthread_mutex_t mutex;
        pthread_cond_t cond;
        int turn;
    } *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t of_mutex;
    pthread_condattr_t of_cond;
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    int status = 1;
    CHECK(shared != MAP_FAILED);
    CHECK(pthread_mutexattr_init(&of_mutex) == 0 && pthread_mutexattr_setpshared(&of_mutex, 1) == 0);
    CHECK(pthread_condattr_init(&of_cond) == 0 && pthread_condattr_setpshared(&of_cond, 1) == 0);
    CHECK(pthread_mutex_init(&shared->mutex, &of_mutex) == 0);
    CHECK(pthread_cond_init(&shared->cond, &of_cond) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    for (int i = 0; i < 200; i++) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        while (shared->turn % 2 != (child == 0))
            CHECK(pthread_cond_wait(&shared->cond, &shared->mutex) == 0);
        shared->turn++;
        CHECK(pthread_cond_signal(&shared->cond) == 0);
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && shared->turn == 400);
    /* Such a condition variable cannot wait with a mutex that is replaced. */
    CHECK(pthread_mutex_lock(&own) == 0);
    if (replaced)
        CHECK(pthread_cond_wait(&shared->cond, &own) == EINVAL);
    CHECK(pthread_mutex_unlock(&own) == 0);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int waiting, cleaned;

/* The mutex is held when a cancelled thread cleans up. */
static void clean_up(void *unused)
{
    (void)unused;
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    cleaned++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void *wait_forever(void *unused)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    waiting++;
    pthread_cleanup_push(clean_up, NULL);
    for (;;)
        pthread_cond_wait(&cond, &mutex);
    pthread_cleanup_pop(0);
    return unused;
}

static void check_cancellation(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    void *result;
    for (int round = 0; round < 20; round++) {
        waiting = cleaned = 0;
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, wait_forever, NULL) == 0);
        for (bool all = false; !all; usleep(100)) {
            pthread_mutex_lock(&mutex);
            all = waiting == THREADS;
            pthread_mutex_unlock(&mutex);
        }
        if (round % 2)
            pthread_cond_broadcast(&cond);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_cancel(threads[i]) == 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(threads[i], &result) == 0 && result == PTHREAD_CANCELED);
        CHECK(cleaned == THREADS);
    }
}

static bool open_now;

static void *pass_gate(void *gate)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    waiting++;
    while (!open_now)
        CHECK(pthread_cond_wait(gate, &mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

/* A condition variable whose memory goes right after its broadcast, while the mutex is held. */
static void check_destroy(void)
{
    enum { THREADS = 12 };
    pthread_t threads[THREADS];
    for (int round = 0; round < 40; round++) {
        pthread_condattr_t attributes;
        pthread_cond_t *gate = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(gate != MAP_FAILED);
        CHECK(pthread_condattr_init(&attributes) == 0 && pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
        CHECK(pthread_cond_init(gate, &attributes) == 0);
        if (round == 0)
            check_cond(gate, &mutex, CLOCK_MONOTONIC);
        open_now = false;
        waiting = 0;
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, pass_gate, gate) == 0);
        for (bool all = false; !all; usleep(100)) {
            pthread_mutex_lock(&mutex);
            all = waiting == THREADS;
            pthread_mutex_unlock(&mutex);
        }
        pthread_mutex_lock(&mutex);
        open_now = true;
        CHECK(pthread_cond_broadcast(gate) == 0 && pthread_cond_destroy(gate) == 0);
        CHECK(munmap(gate, sizeof *gate) == 0);
        pthread_mutex_unlock(&mutex);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

int main(int argc, char **argv)
{
    replaced = argc > 1 && strcmp(argv[1], "replaced") == 0;
    alarm(120);
    check_types();
    check_robust();
    check_shared();
    check_cancellation();
    check_destroy();
    puts("all kept");
    return 0;
}
