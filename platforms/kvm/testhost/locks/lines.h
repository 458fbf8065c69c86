/* Cache lines as CPUs see them, and the lines that critical sections touch. Knows nothing of QEMU: the probe feeds it,
 * and lines_test.c does with streams of its own. For one host thread.
 *
 * A line is known by its virtual address. Which CPUs have a copy of it follows from all accesses of the kernel: a store
 * leaves the only copy to its CPU. What a CPU has not touched within the last 4096 lines or so its cache has lost
 * (256 KB in sets of 8: the L2 of Xeons from Nehalem to Broadwell).
 *
 * The class of a line is that of its first access in a section:
 *   OWN        this CPU's copy is valid and in its cache
 *   COLD       no other CPU has changed it, but this CPU's cache does not have it
 *   SHARED     read: other CPUs have copies, and none has changed it. Store: other CPUs lose their copies
 *   ELSEWHERE  another CPU has changed it since this CPU touched it
 * A section nested in another one counts only what the outer one has not touched before. The lines of the locks that
 * are held do not count, since they are the locks' own costs.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OWN, COLD, SHARED, ELSEWHERE, CLASSES };
enum { LINES_CPUS = 16, LINE_BITS = 6, PAGE_BITS = 12, LINES_OF_PAGE = 1 << (PAGE_BITS - LINE_BITS) };
enum { PAGE_SLOTS = 1 << 21, CACHE_SETS = 512, CACHE_WAYS = 8, TOUCHED_SLOTS = 1 << 13, DEPTH_MAX = 16, LAST_SLOTS = 1 << 18 };

/* Linux's struct page has a line of its own, in this area. */
#define PAGE_STRUCTS 0xffffea0000000000u
#define PAGE_STRUCTS_END 0xffffeb0000000000u

/* `writer` is the CPU that stored last, plus 1. */
struct line { uint16_t copies; uint8_t writer; };
struct line_page { uint64_t number; struct line lines[LINES_OF_PAGE]; };

/* What a section has touched: distinct lines. `moved`: another CPU held the lock before. */
struct section {
    uint64_t lock, caller, since, nested;
    unsigned loaded, stored, of_class[CLASSES], pages;
    bool moved, contended;
};

struct touched { uint64_t line, outermost; bool loaded, stored; };

static struct {
    uint64_t cache[CACHE_SETS][CACHE_WAYS];
    struct section sections[DEPTH_MAX];
    unsigned depth;
    /* Instructions in user mode when `sections` was last changed: no spinlock is held in user mode. */
    uint64_t user;
    /* The number of the outermost section, which is the generation of `touched`. */
    uint64_t outermost;
    struct touched touched[TOUCHED_SLOTS];
    unsigned touched_count;
    struct line_page *page;
} line_cpus[LINES_CPUS];

static struct line_page **line_pages;
static struct { uint64_t lock; uint8_t cpu; } last_holders[LAST_SLOTS];

static uint64_t mixed(uint64_t number) { return number * 0x9e3779b97f4a7c15u >> 32; }

static struct line *line_at(unsigned cpu, uint64_t address)
{
    uint64_t number = address >> PAGE_BITS;
    struct line_page *page = line_cpus[cpu].page;
    if (!page || page->number != number) {
        if (!line_pages)
            line_pages = calloc(PAGE_SLOTS, sizeof *line_pages);
        size_t slot = mixed(number) % PAGE_SLOTS;
        while (line_pages[slot] && line_pages[slot]->number != number)
            slot = (slot + 1) % PAGE_SLOTS;
        if (!line_pages[slot]) {
            line_pages[slot] = calloc(1, sizeof *page);
            line_pages[slot]->number = number;
        }
        page = line_cpus[cpu].page = line_pages[slot];
    }
    return &page->lines[address >> LINE_BITS & (LINES_OF_PAGE - 1)];
}

/* Makes the line the most recent one of its set. Returns whether the cache had it. */
static bool in_cache(unsigned cpu, uint64_t line)
{
    uint64_t *ways = line_cpus[cpu].cache[line % CACHE_SETS], moving = line;
    for (unsigned way = 0; way < CACHE_WAYS; way++) {
        uint64_t next = ways[way];
        ways[way] = moving;
        if (next == line)
            return true;
        moving = next;
    }
    return false;
}

static unsigned class_of_access(unsigned cpu, uint64_t address, bool stores)
{
    struct line *line = line_at(cpu, address);
    uint16_t mine = 1u << cpu;
    bool cached = in_cache(cpu, address >> LINE_BITS);
    unsigned class = COLD;
    if (line->copies & mine)
        class = stores && line->copies != mine ? SHARED : cached ? OWN : COLD;
    else if (line->copies)
        class = line->writer ? ELSEWHERE : SHARED;
    if (stores) {
        line->copies = mine;
        line->writer = cpu + 1;
    } else
        line->copies |= mine;
    return class;
}

/* The entry of the line for the outermost section. NULL: it has too many lines. */
static struct touched *touched_in(unsigned cpu, uint64_t line)
{
    size_t slot = mixed(line) % TOUCHED_SLOTS;
    for (;;) {
        struct touched *touched = &line_cpus[cpu].touched[slot];
        if (touched->outermost != line_cpus[cpu].outermost) {
            if (line_cpus[cpu].touched_count == TOUCHED_SLOTS / 2)
                return NULL;
            line_cpus[cpu].touched_count++;
            *touched = (struct touched){ .line = line, .outermost = line_cpus[cpu].outermost };
            return touched;
        }
        if (touched->line == line)
            return touched;
        slot = (slot + 1) % TOUCHED_SLOTS;
    }
}

/* A load or store of the kernel. */
static void lines_access(unsigned cpu, uint64_t address, bool stores)
{
    unsigned class = class_of_access(cpu, address, stores), depth = line_cpus[cpu].depth;
    if (depth == 0)
        return;
    uint64_t line = address >> LINE_BITS;
    for (unsigned i = 0; i < depth; i++)
        if (line_cpus[cpu].sections[i].lock >> LINE_BITS == line)
            return;
    struct touched *touched = touched_in(cpu, line);
    struct section *section = &line_cpus[cpu].sections[depth - 1];
    if (!touched)
        return;
    bool is_page = address >= PAGE_STRUCTS && address < PAGE_STRUCTS_END;
    if (!touched->loaded && !touched->stored)
        section->of_class[class]++;
    section->loaded += !stores && !touched->loaded;
    section->stored += stores && !touched->stored;
    section->pages += stores && !touched->stored && is_page;
    if (stores)
        touched->stored = true;
    else
        touched->loaded = true;
}

/* `user`: instructions of this CPU in user mode so far. */
static void lines_lock(unsigned cpu, uint64_t lock, uint64_t caller, uint64_t now, uint64_t user)
{
    unsigned depth = line_cpus[cpu].depth;
    /* What is still in the list was tried in vain. */
    if (line_cpus[cpu].user != user)
        depth = 0;
    for (unsigned i = 0; i < depth; i++)
        if (line_cpus[cpu].sections[i].lock == lock) {
            memmove(&line_cpus[cpu].sections[i], &line_cpus[cpu].sections[i + 1], (--depth - i) * sizeof(struct section));
            break;
        }
    if (depth == DEPTH_MAX)
        depth = 0;
    if (depth == 0) {
        line_cpus[cpu].outermost++;
        line_cpus[cpu].touched_count = 0;
    }
    size_t slot = mixed(lock >> 2) % LAST_SLOTS;
    bool moved = last_holders[slot].lock == lock && last_holders[slot].cpu != cpu;
    last_holders[slot].lock = lock;
    last_holders[slot].cpu = cpu;
    line_cpus[cpu].sections[depth] = (struct section){ .lock = lock, .caller = caller, .since = now, .moved = moved };
    line_cpus[cpu].depth = depth + 1;
    line_cpus[cpu].user = user;
}

/* The lock that was taken last is waited for. */
static void lines_contended(unsigned cpu)
{
    if (line_cpus[cpu].depth)
        line_cpus[cpu].sections[line_cpus[cpu].depth - 1].contended = true;
}

/* Returns whether the lock was held, and what its section touched. `nested` then are its own instructions. */
static bool lines_unlock(unsigned cpu, uint64_t lock, uint64_t now, struct section *done)
{
    for (unsigned i = line_cpus[cpu].depth; i-- > 0;) {
        struct section *sections = line_cpus[cpu].sections;
        if (sections[i].lock != lock)
            continue;
        *done = sections[i];
        uint64_t time = now - done->since;
        if (i > 0)
            sections[i - 1].nested += time;
        done->nested = time > done->nested ? time - done->nested : 0;
        memmove(&sections[i], &sections[i + 1], (--line_cpus[cpu].depth - i) * sizeof *sections);
        return true;
    }
    return false;
}
