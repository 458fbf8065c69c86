/*
 * A program whose allocator is guarded by the lock. A call of the lock, a condition variable or a reader-writer lock
 * that allocates, loads a library or opens a file ends the program, since the lock may be the one that it needs.
 *
 * With -DPTHREAD the types are those of pthreads. Prints "kept".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef PTHREAD
typedef pthread_mutex_t lock_t;
typedef pthread_cond_t cond_t;
typedef pthread_rwlock_t rwlock_t;
#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
#define COND_INIT PTHREAD_COND_INITIALIZER
#define RWLOCK_INIT PTHREAD_RWLOCK_INITIALIZER
#define CALL(name) pthread_##name
#define LOCK(name) pthread_mutex_##name
#define TAKEN(call) ((call) == 0)
#define CLOCK CLOCK_REALTIME
#define rwlock_rdunlock rwlock_unlock
#define rwlock_wrunlock rwlock_unlock
#else
#include <holdfast.h>
typedef holdfast_lock_t lock_t;
typedef holdfast_cond_t cond_t;
typedef holdfast_rwlock_t rwlock_t;
#define LOCK_INIT HOLDFAST_LOCK_INIT
#define COND_INIT HOLDFAST_COND_INIT
#define RWLOCK_INIT HOLDFAST_RWLOCK_INIT
#define CALL(name) holdfast_##name
#define LOCK(name) holdfast_lock_##name
#define TAKEN(call) (call)
#define CLOCK CLOCK_MONOTONIC
#endif
#define CALL_(name) CALL(name)

/* Whether the thread is inside a call of a lock. */
static _Thread_local bool inside;
static bool started;

static void refuse(const char *what)
{
    (void)!write(2, what, strlen(what));
    _Exit(1);
}

#define INSIDE(call) (inside = true, (void)(call), inside = false)
#define OUTSIDE(name) do { if (inside) refuse(name " inside a call\n"); } while (0)

static lock_t heap_lock = LOCK_INIT;
static alignas(16) char heap[1 << 28];
static size_t heap_used;

void *malloc(size_t size)
{
    OUTSIDE("malloc");
    INSIDE(LOCK(lock)(&heap_lock));
    size_t at = heap_used + 16;
    heap_used = (at + size + 15) & ~(size_t)15;
    bool full = heap_used > sizeof heap;
    INSIDE(LOCK(unlock)(&heap_lock));
    if (full)
        refuse("the heap is full\n");
    memcpy(heap + at - 16, &size, sizeof size);
    return heap + at;
}

void free(void *block)
{
    (void)block;
    OUTSIDE("free");
}

void *calloc(size_t count, size_t size)
{
    OUTSIDE("calloc");
    /* Each byte is given out once. */
    return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
    OUTSIDE("realloc");
    char *moved = malloc(size);
    if (block) {
        size_t before;
        memcpy(&before, (char *)block - 16, sizeof before);
        memcpy(moved, block, before < size ? before : size);
    }
    return moved;
}

void *dlopen(const char *name, int flags)
{
    OUTSIDE("dlopen");
    if (!started)
        refuse("dlopen while the program is loaded\n");
    static void *(*next)(const char *, int);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    return next(name, flags);
}

int open(const char *name, int flags, ...)
{
    OUTSIDE("open");
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    return openat(AT_FDCWD, name, flags, mode);
}

static struct timespec in_a_moment(void)
{
    struct timespec time;
    clock_gettime(CLOCK, &time);
    time.tv_nsec += 100000;
    if (time.tv_nsec >= 1000000000)
        time.tv_nsec -= 1000000000, time.tv_sec++;
    return time;
}

static lock_t lock = LOCK_INIT;
static cond_t cond = COND_INIT;
static rwlock_t rwlock = RWLOCK_INIT;
static unsigned waiting, turn, shared;

enum { THREADS = 8, ROUNDS = 300 };

static void *work(void *argument)
{
    (void)argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct timespec deadline = in_a_moment();
        free(malloc(round));
        bool taken;
        INSIDE(taken = TAKEN(LOCK(timedlock)(&lock, &deadline)));
        if (!taken)
            INSIDE(taken = TAKEN(LOCK(trylock)(&lock)));
        if (!taken)
            INSIDE(LOCK(lock)(&lock));
        if (++waiting % 4 == 0) {
            turn++;
            if (round % 2)
                INSIDE(CALL(cond_broadcast)(&cond));
            else
                INSIDE(CALL(cond_signal)(&cond));
        }
        unsigned before = turn;
        while (before == turn && waiting % 4) {
            deadline = in_a_moment();
            bool notified;
            INSIDE(notified = TAKEN(CALL(cond_timedwait)(&cond, &lock, &deadline)));
            if (!notified)
                break;
        }
        INSIDE(LOCK(unlock)(&lock));

        INSIDE(CALL(rwlock_rdlock)(&rwlock));
        unsigned seen = shared;
        INSIDE(CALL_(rwlock_rdunlock)(&rwlock));
        INSIDE(CALL(rwlock_wrlock)(&rwlock));
        shared += seen <= shared;
        /* Others wait meanwhile. */
        if (round % 64 == 0)
            usleep(100);
        INSIDE(CALL_(rwlock_wrunlock)(&rwlock));
    }
    return NULL;
}

static void crowd(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            refuse("no thread\n");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    started = true;
    alarm(60);
    crowd();
    /* Threads whose numbers were used before, and a child that waits for the first time in its life. */
    pid_t child = fork();
    crowd();
    if (child == 0)
        _exit(0);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        refuse("the child failed\n");
    if (shared != 2 * THREADS * ROUNDS)
        refuse("an increment is lost\n");
    puts("kept");
    return 0;
}
