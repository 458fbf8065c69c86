/*
 * Many threads: a bounded queue with producers and consumers, counters, and children that fork meanwhile. Prints what
 * does not hold, and fails.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__, __func__, #condition);                  \
            _exit(1);                                                                                          \
        }                                                                                                      \
    } while (0)

enum { PAIRS = 12, ITEMS = 2000, ROOM = 8, CHILDREN = 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, fork_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static int queue[ROOM], used;
static long taken, sum;

static void *produce(void *unused)
{
    for (int i = 1; i <= ITEMS; i++) {
        pthread_mutex_lock(&mutex);
        while (used == ROOM)
            pthread_cond_wait(&not_full, &mutex);
        queue[used++] = i;
        pthread_mutex_unlock(&mutex);
        pthread_cond_signal(&not_empty);
    }
    return unused;
}

static void *consume(void *unused)
{
    for (int i = 0; i < ITEMS; i++) {
        pthread_mutex_lock(&mutex);
        while (used == 0)
            pthread_cond_wait(&not_empty, &mutex);
        CHECK(used > 0 && used <= ROOM);
        sum += queue[--used];
        taken++;
        pthread_mutex_unlock(&mutex);
        if (i % 16 == 0)
            pthread_cond_broadcast(&not_full);
        else
            pthread_cond_signal(&not_full);
    }
    return unused;
}

static void lock_for_fork(void) { pthread_mutex_lock(&mutex); }
static void unlock_after_fork(void) { pthread_mutex_unlock(&mutex); }

static void use_in_the_child(void)
{
    pthread_t producer, consumer;
    long before;
    alarm(60);
    pthread_mutex_lock(&mutex);
    used = 0;
    before = taken;
    pthread_mutex_unlock(&mutex);
    /* The parent's threads waited for these condition variables. */
    CHECK(pthread_create(&producer, NULL, produce, NULL) == 0);
    CHECK(pthread_create(&consumer, NULL, consume, NULL) == 0);
    CHECK(pthread_join(producer, NULL) == 0 && pthread_join(consumer, NULL) == 0);
    CHECK(taken == before + ITEMS && used == 0);
    CHECK(pthread_cond_destroy(&not_full) == 0 && pthread_mutex_destroy(&fork_mutex) == 0);
    _exit(0);
}

int main(void)
{
    pthread_t threads[2 * PAIRS];
    alarm(120);
    CHECK(pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork) == 0);
    for (int i = 0; i < PAIRS; i++) {
        CHECK(pthread_create(&threads[2 * i], NULL, produce, NULL) == 0);
        CHECK(pthread_create(&threads[2 * i + 1], NULL, consume, NULL) == 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status = 1;
        usleep(500);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            use_in_the_child();
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(taken == (long)PAIRS * ITEMS && used == 0);
    CHECK(sum == (long)PAIRS * ITEMS * (ITEMS + 1) / 2);
    puts("all kept");
    return 0;
}
