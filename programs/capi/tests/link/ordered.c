/*
 * Threads write data that a lock, a reader-writer lock or a condition variable protects. With -DRACE they also write
 * data that nothing protects.
 */
#include <holdfast.h>

#include <pthread.h>

static holdfast_lock_t lock = HOLDFAST_LOCK_INIT;
static holdfast_rwlock_t rwlock = HOLDFAST_RWLOCK_INIT;
static holdfast_cond_t changed = HOLDFAST_COND_INIT;
static long counted, written, seen, turn, racy;

static void *work(void *number)
{
    long me = (long)number;
    for (int round = 0; round < 100; round++) {
        holdfast_lock_lock(&lock);
        counted++;
        while (turn % 2 != me)
            holdfast_cond_wait(&changed, &lock);
        turn++;
        holdfast_cond_broadcast(&changed);
        holdfast_lock_unlock(&lock);
        holdfast_rwlock_wrlock(&rwlock);
        written++;
        holdfast_rwlock_downgrade(&rwlock);
        long before = written;
        holdfast_rwlock_rdunlock(&rwlock);
        if (holdfast_lock_trylock(&lock)) {
            seen += before;
            holdfast_lock_unlock(&lock);
        }
#ifdef RACE
        racy++;
#endif
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 2;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return counted != 200 || written != 200 || turn != 200 || (racy && seen == 1);
}
