/* Checks lines.h with streams of accesses. Prints the first property that does not hold, and then fails. */
#include <stdio.h>

#include "lines.h"

#define LOCK 0xffff888000001000u
#define OTHER_LOCK 0xffff888000002000u
#define DATA 0xffff888000010000u

static int failures;

static void check(const char *what, unsigned found, unsigned expected)
{
    if (found == expected)
        return;
    printf("%s: found %u, expected %u\n", what, found, expected);
    failures++;
}

static struct section done(unsigned cpu, uint64_t lock, uint64_t now)
{
    struct section section = { 0 };
    check("the lock is held", lines_unlock(cpu, lock, now, &section), true);
    return section;
}

static void check_classes(const char *what, const struct section *section, unsigned own, unsigned cold, unsigned shared, unsigned elsewhere)
{
    unsigned expected[CLASSES] = { own, cold, shared, elsewhere };
    for (unsigned class = 0; class < CLASSES; class++)
        check(what, section->of_class[class], expected[class]);
}

/* However often and wherever a section touches a line, it is one line. */
static void a_line_counts_once(void)
{
    lines_access(0, DATA, true);
    lines_lock(0, LOCK, 7, 100, 0);
    for (unsigned i = 0; i < 8; i++) {
        lines_access(0, DATA + 8 * i, false);
        lines_access(0, DATA + 8 * i, true);
    }
    struct section section = done(0, LOCK, 150);
    check_classes("a line counts once", &section, 1, 0, 0, 0);
    check("lines loaded", section.loaded, 1);
    check("lines stored", section.stored, 1);
    check("instructions", section.nested, 50);
    check("caller", section.caller, 7);
}

static void lines_of_other_cpus_are_elsewhere(void)
{
    uint64_t at = DATA + 0x1000;
    for (unsigned i = 0; i < 3; i++)
        lines_access(0, at + 64 * i, true);
    lines_access(1, at, true);
    lines_access(1, at + 64, false);
    lines_lock(0, LOCK, 0, 0, 0);
    lines_access(0, at, false);
    lines_access(0, at + 64, true);
    lines_access(0, at + 128, true);
    struct section section = done(0, LOCK, 1);
    check_classes("changed, read, untouched", &section, 1, 0, 1, 1);
    lines_lock(0, LOCK, 0, 0, 0);
    lines_access(0, at, false);
    section = done(0, LOCK, 1);
    check_classes("fetched before", &section, 1, 0, 0, 0);
}

static void what_no_cpu_changes_is_shared_or_cold(void)
{
    uint64_t at = DATA + 0x2000;
    lines_access(1, at, false);
    lines_lock(0, LOCK, 0, 0, 0);
    lines_access(0, at, false);
    lines_access(0, at + 64, false);
    struct section section = done(0, LOCK, 1);
    check_classes("read by another CPU, by none", &section, 0, 1, 1, 0);
}

static void a_cache_loses_what_was_not_touched_for_long(void)
{
    uint64_t at = DATA + 0x3000, far = DATA + 0x1000000;
    lines_access(0, at, true);
    for (unsigned i = 0; i < 2 * CACHE_SETS * CACHE_WAYS; i++)
        lines_access(0, far + 64 * i, false);
    lines_lock(0, LOCK, 0, 0, 0);
    lines_access(0, at, false);
    lines_access(0, far + 64 * (2 * CACHE_SETS * CACHE_WAYS - 1), false);
    struct section section = done(0, LOCK, 1);
    check_classes("lost, and recent", &section, 1, 1, 0, 0);
}

static void nested_sections_count_what_is_new(void)
{
    uint64_t at = DATA + 0x4000;
    for (unsigned i = 0; i < 3; i++)
        lines_access(0, at + 64 * i, true);
    lines_lock(0, LOCK, 0, 100, 0);
    lines_access(0, at, false);
    lines_access(0, LOCK, true);
    lines_lock(0, OTHER_LOCK, 0, 120, 0);
    lines_access(0, OTHER_LOCK, true);
    lines_access(0, at, true);
    lines_access(0, at + 64, true);
    struct section inner = done(0, OTHER_LOCK, 150);
    lines_access(0, at + 128, false);
    struct section outer = done(0, LOCK, 200);
    check_classes("inner", &inner, 1, 0, 0, 0);
    check_classes("outer", &outer, 2, 0, 0, 0);
    check("the inner section's instructions", inner.nested, 30);
    check("the outer section's own instructions", outer.nested, 70);
}

static void holders_before_are_known(void)
{
    lines_lock(2, LOCK, 0, 0, 0);
    check("the lock moved", done(2, LOCK, 1).moved, true);
    lines_lock(2, LOCK, 0, 0, 0);
    lines_contended(2);
    struct section section = done(2, LOCK, 1);
    check("the lock stayed", section.moved, false);
    check("it was waited for", section.contended, true);
}

static void attempts_in_vain_end_in_user_mode(void)
{
    struct section section;
    lines_lock(3, OTHER_LOCK, 0, 0, 10);
    lines_lock(3, LOCK, 0, 5, 11);
    lines_access(3, DATA + 0x5000, true);
    check("one line in the section", done(3, LOCK, 6).stored, 1);
    check("the other attempt is forgotten", lines_unlock(3, OTHER_LOCK, 7, &section), false);
}

int main(void)
{
    a_line_counts_once();
    lines_of_other_cpus_are_elsewhere();
    what_no_cpu_changes_is_shared_or_cold();
    a_cache_loses_what_was_not_touched_for_long();
    nested_sections_count_what_is_new();
    holders_before_are_known();
    attempts_in_vain_end_in_user_mode();
    return failures != 0;
}
