/* A plugin that is linked with the static library. */
#define _GNU_SOURCE
#include <holdfast.h>

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static holdfast_lock_t lock = HOLDFAST_LOCK_INIT;

static void *use(void *unused)
{
    for (int i = 0; i < 20; i++) {
        holdfast_lock_lock(&lock);
        usleep(500);
        holdfast_lock_unlock(&lock);
    }
    return unused;
}

/* Contends on the calling thread and another thread. */
void plugin_use(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, use, NULL) != 0)
        abort();
    use(NULL);
    if (pthread_join(other, NULL) != 0)
        abort();
}
