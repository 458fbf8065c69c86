/*
 * Threads use one lock, reader-writer lock and condition variable through several copies of the library: those of the
 * plugins that the arguments name. With -DOWN the program has a copy, too. Prints "kept".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <holdfast.h>

enum { COPIES_MAX = 4, THREADS = 8, ROUNDS = 4000 };

static struct copy {
    void (*lock)(holdfast_lock_t *), (*unlock)(holdfast_lock_t *);
    void (*rdlock)(holdfast_rwlock_t *), (*rdunlock)(holdfast_rwlock_t *);
    void (*wrlock)(holdfast_rwlock_t *), (*wrunlock)(holdfast_rwlock_t *);
    void (*wait)(holdfast_cond_t *, holdfast_lock_t *), (*broadcast)(holdfast_cond_t *);
} copies[COPIES_MAX];
static int copies_count;

static holdfast_lock_t lock = HOLDFAST_LOCK_INIT;
static holdfast_rwlock_t rwlock = HOLDFAST_RWLOCK_INIT;
static holdfast_cond_t changed = HOLDFAST_COND_INIT;
static long counter, written, turn;
static atomic_int inside, broken, asleep;

static void check(int kept)
{
    if (!kept)
        broken++;
}

static void load(const char *path)
{
    struct copy *copy = &copies[copies_count++];
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define FIND(field, name) *(void **)&copy->field = dlsym(plugin, "use_" name)
    FIND(lock, "lock_lock"), FIND(unlock, "lock_unlock");
    FIND(rdlock, "rwlock_rdlock"), FIND(rdunlock, "rwlock_rdunlock");
    FIND(wrlock, "rwlock_wrlock"), FIND(wrunlock, "rwlock_wrunlock");
    FIND(wait, "cond_wait"), FIND(broadcast, "cond_broadcast");
}

/* Now and then long enough for the waiting threads to sleep. */
static void work(int round)
{
    if (round % 128 == 0)
        usleep(300);
    for (volatile int i = 0; i < 100; i++)
        ;
}

static void *use(void *number)
{
    long me = (long)number;
    for (int round = 0; round < ROUNDS; round++) {
        /* Each lock is taken by one copy and released by another one, in turn. */
        const struct copy *one = &copies[(me + round) % copies_count], *two = &copies[(me + round / 2) % copies_count];
        one->lock(&lock);
        check(atomic_fetch_add(&inside, 1) == 0);
        counter++;
        work(round);
        atomic_fetch_sub(&inside, 1);
        two->unlock(&lock);
        if (round % 8 == me) {
            two->wrlock(&rwlock);
            written++;
            work(round);
            one->wrunlock(&rwlock);
        } else {
            one->rdlock(&rwlock);
            long before = written;
            work(round + 1);
            check(written == before);
            two->rdunlock(&rwlock);
        }
    }
    return NULL;
}

/* The threads of all copies take turns by broadcasts. */
static void *take_turns(void *number)
{
    long me = (long)number;
    const struct copy *copy = &copies[me % copies_count], *other = &copies[(me + 1) % copies_count];
    for (int round = 0; round < ROUNDS / 40; round++) {
        copy->lock(&lock);
        while (turn % THREADS != me)
            copy->wait(&changed, &lock);
        turn++;
        other->broadcast(&changed);
        other->unlock(&lock);
    }
    return NULL;
}

static void *wait_once(void *number)
{
    const struct copy *copy = &copies[(long)number % copies_count];
    asleep++;
    copy->lock(&lock);
    copy->unlock(&lock);
    return NULL;
}

static void on_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, body, (void *)i) != 0)
            abort();
    if (body == wait_once) {
        /* A child has none of the threads that wait, and takes the lock over from each copy. */
        while (asleep < THREADS)
            usleep(1000);
        usleep(20000);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            copies[copies_count - 1].unlock(&lock);
            for (int i = 0; i < copies_count; i++)
                copies[i].lock(&lock), copies[i].unlock(&lock);
            asleep = 0;
            on_threads(use);
            _exit(broken != 0);
        }
        int status = 1;
        check(waitpid(child, &status, 0) == child && status == 0);
        copies[0].unlock(&lock);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    alarm(60);
#ifdef OWN
    copies[copies_count++] = (struct copy){
        holdfast_lock_lock, holdfast_lock_unlock, holdfast_rwlock_rdlock, holdfast_rwlock_rdunlock,
        holdfast_rwlock_wrlock, holdfast_rwlock_wrunlock, holdfast_cond_wait, holdfast_cond_broadcast,
    };
#endif
    for (int i = 1; i < argc; i++)
        load(argv[i]);
    on_threads(use);
    on_threads(take_turns);
    copies[0].lock(&lock);
    on_threads(wait_once);
    check(counter == (long)THREADS * ROUNDS && turn == (long)THREADS * (ROUNDS / 40));
    puts(broken ? "broken" : "kept");
    return broken != 0;
}
