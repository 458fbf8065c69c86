/*
 * Misuses a lock as the first argument says, and says so itself before. With the debug library each misuse ends the
 * program, or is reported and ends with "went on".
 */
#include <holdfast.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static holdfast_lock_t lock = HOLDFAST_LOCK_INIT, other = HOLDFAST_LOCK_INIT, third = HOLDFAST_LOCK_INIT;
static holdfast_rwlock_t rwlock = HOLDFAST_RWLOCK_INIT;
static holdfast_cond_t cond = HOLDFAST_COND_INIT;

static void *on_a_thread(void *body)
{
    void (*function)(void);
    memcpy(&function, &body, sizeof function);
    function();
    return NULL;
}

static void in_another_thread(void (*function)(void))
{
    pthread_t thread;
    void *body;
    memcpy(&body, &function, sizeof body);
    if (pthread_create(&thread, NULL, on_a_thread, body) == 0)
        pthread_join(thread, NULL);
}

static void take(holdfast_lock_t *first, holdfast_lock_t *second)
{
    holdfast_lock_lock(first);
    holdfast_lock_lock(second);
    holdfast_lock_unlock(second);
    holdfast_lock_unlock(first);
}

static void take_in_order(void)
{
    take(&lock, &other);
    take(&other, &third);
}

static void unlock(void)
{
    holdfast_lock_unlock(&lock);
}

static void wait_briefly(holdfast_lock_t *with, long milliseconds)
{
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += milliseconds * 1000000;
    deadline.tv_sec += deadline.tv_nsec / 1000000000;
    deadline.tv_nsec %= 1000000000;
    holdfast_lock_lock(with);
    holdfast_cond_timedwait(&cond, with, &deadline);
    holdfast_lock_unlock(with);
}

static void wait_with_lock(void)
{
    wait_briefly(&lock, 500);
}

int main(int argc, char **argv)
{
    const struct rlimit no_core = { 0, 0 };
    setrlimit(RLIMIT_CORE, &no_core);
    const char *misuse = argc > 1 ? argv[1] : "";
    printf("%p %p %p %p\n", (void *)&lock, (void *)&other, (void *)&rwlock, (void *)&cond);
    fflush(stdout);
    if (!strcmp(misuse, "unlock")) {
        unlock();
    } else if (!strcmp(misuse, "wait")) {
        holdfast_cond_wait(&cond, &lock);
    } else if (!strcmp(misuse, "twice")) {
        holdfast_lock_lock(&lock);
        holdfast_lock_lock(&lock);
    } else if (!strcmp(misuse, "other-thread")) {
        holdfast_lock_lock(&lock);
        in_another_thread(unlock);
    } else if (!strcmp(misuse, "writer-as-reader")) {
        holdfast_rwlock_wrlock(&rwlock);
        holdfast_rwlock_rdunlock(&rwlock);
    } else if (!strcmp(misuse, "read-twice")) {
        holdfast_rwlock_rdlock(&rwlock);
        holdfast_rwlock_rdlock(&rwlock);
        holdfast_rwlock_rdunlock(&rwlock);
        holdfast_rwlock_rdunlock(&rwlock);
    } else if (!strcmp(misuse, "order")) {
        in_another_thread(take_in_order);
        take(&third, &lock);
        take(&third, &lock);
    } else if (!strcmp(misuse, "wait-order")) {
        holdfast_lock_lock(&lock);
        holdfast_lock_lock(&other);
        const struct timespec past = { 0, 0 };
        holdfast_cond_timedwait(&cond, &lock, &past);
        holdfast_lock_unlock(&other);
        holdfast_lock_unlock(&lock);
    } else if (!strcmp(misuse, "two-locks")) {
        pthread_t thread;
        void *body;
        void (*function)(void) = wait_with_lock;
        memcpy(&body, &function, sizeof body);
        if (pthread_create(&thread, NULL, on_a_thread, body) != 0)
            return 1;
        nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
        wait_briefly(&other, 1);
        pthread_join(thread, NULL);
    } else if (!strcmp(misuse, "initialized-again")) {
        take(&lock, &other);
        holdfast_lock_init(&lock);
        take(&other, &lock);
    }
    puts("went on");
    return 0;
}
