/* Counts the calls of mutexes and condition variables of a program, and how many found the mutex taken.
 *
 * LD_PRELOAD=count.so COUNT=FOLDER program: each process writes a file with its counts when it exits: locks, locks that
 * had to wait, waits for condition variables. A child begins at 0. Lost at a signal and at _exit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_ulong locks, waits, conditions;
static int (*try_lock)(pthread_mutex_t *), (*lock)(pthread_mutex_t *);
static int (*wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*wait_until)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

static void child(void) { locks = waits = conditions = 0; }

__attribute__((constructor(101))) static void find(void) {
    try_lock = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    wait = dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2");
    wait_until = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    pthread_atfork(NULL, NULL, child);
}

__attribute__((destructor)) static void say(void) {
    char path[4096];
    const char *folder = getenv("COUNT");
    if (folder == NULL) return;
    snprintf(path, sizeof path, "%s/%d", folder, getpid());
    FILE *file = fopen(path, "w");
    if (file == NULL) return;
    fprintf(file, "%lu %lu %lu\n", locks, waits, conditions);
    fclose(file);
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (try_lock == NULL) find();
    atomic_fetch_add_explicit(&locks, 1, memory_order_relaxed);
    int result = try_lock(mutex);
    if (result != EBUSY) return result;
    atomic_fetch_add_explicit(&waits, 1, memory_order_relaxed);
    return lock(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    if (try_lock == NULL) find();
    atomic_fetch_add_explicit(&locks, 1, memory_order_relaxed);
    return try_lock(mutex);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    if (wait == NULL) find();
    atomic_fetch_add_explicit(&conditions, 1, memory_order_relaxed);
    return wait(condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *time) {
    if (wait_until == NULL) find();
    atomic_fetch_add_explicit(&conditions, 1, memory_order_relaxed);
    return wait_until(condition, mutex, time);
}
