/* Loads a plugin that uses locks, and unloads it while a thread that has used a lock continues. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dlerror());
    return 1;
}

static const char *path;

static void *load_use_unload(void *failed)
{
    void *plugin = dlopen(path, RTLD_NOW);
    if (!plugin)
        return *(int *)failed = fail("cannot load"), NULL;
    void (*use)(void);
    *(void **)&use = dlsym(plugin, "plugin_use");
    if (!use)
        return *(int *)failed = fail("has no plugin_use"), NULL;
    use();
    if (dlclose(plugin) != 0)
        return *(int *)failed = fail("cannot unload"), NULL;
    /* Long enough to be interrupted: then the kernel reads the address that the thread has stored for it. */
    const clock_t end = clock() + CLOCKS_PER_SEC / 20;
    while (clock() < end)
        ;
    /* When the thread ends, the C library calls the destructor that the thread has registered. */
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int failed = argc != 2;
    path = argv[argc - 1];
    if (failed || pthread_create(&thread, NULL, load_use_unload, &failed) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    if (!failed)
        puts("all kept");
    return failed;
}
