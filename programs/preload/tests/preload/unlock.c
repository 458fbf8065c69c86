/* Prints the address of a mutex, and unlocks it although it is not locked. */
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
    const struct rlimit no_core = { 0, 0 };
    setrlimit(RLIMIT_CORE, &no_core);
    printf("%p\n", (void *)&mutex);
    fflush(stdout);
    pthread_mutex_unlock(&mutex);
    return 0;
}
