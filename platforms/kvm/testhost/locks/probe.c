/* A plugin of QEMU's TCG that records what a stock kernel locks.
 *
 * Arguments: hooks=FILE with lines "ADDRESS NUMBER KIND" (hexadecimal, decimal): functions whose entries are recorded.
 *            KIND is l for a lock's acquisition, u for its release, w for waiting for it, - otherwise.
 *            percpu=ADDRESS: the kernel's array of offsets of per-CPU variables.
 *            marks=ADDRESS: the entry of the measuring program's function mark().
 *            out=FILE: the records.  symbols=FILE: where a text that the program hands over is written.
 *            lines=1: records no entries, but the cache lines that each section with a spinlock touches. For a machine
 *            whose CPUs are executed in turn by one thread.
 *            counts=1: records no entries, but at each mark how often each function was entered on all CPUs. For a
 *            machine whose CPUs are executed in turn by one thread.
 *
 * QEMU's package has no header, so the few functions used here are declared by hand (plugin interface 7).
 */
#include <pthread.h>
#include <stdio.h>

#include "lines.h"

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 7;

typedef struct { uint8_t *data; unsigned len; } GByteArray;
typedef struct { char *data; unsigned len; } GArray;
GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned size);

struct block;
struct instruction;
struct scoreboard;
typedef struct { struct scoreboard *score; size_t offset; } counter;
typedef struct { void *handle; const char *name; const char *feature; bool read_only; } descriptor;
typedef void (*on_cpu)(unsigned cpu, void *data);
enum { NO_REGISTERS, READS_REGISTERS };
enum { ADD_U64 };
enum { LOADS = 1, STORES = 2 };
typedef void (*on_access)(unsigned cpu, uint32_t about, uint64_t address, void *data);
void qemu_plugin_register_vcpu_init_cb(uint64_t id, on_cpu callback, void *data);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*callback)(uint64_t, uint64_t), void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct instruction *, on_cpu callback, int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct instruction *, on_access callback, int flags, int accesses, void *data);
void qemu_plugin_register_vcpu_tb_exec_cb(struct block *, on_cpu callback, int flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct block *, int operation, counter, uint64_t value);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*callback)(uint64_t, uint64_t), void *data);
size_t qemu_plugin_tb_n_insns(const struct block *);
struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct instruction *);
struct scoreboard *qemu_plugin_scoreboard_new(size_t size);
uint64_t qemu_plugin_u64_get(counter, unsigned cpu);
GArray *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(void *handle, GByteArray *into);
bool qemu_plugin_read_memory_vaddr(uint64_t address, GByteArray *into, size_t length);

/* One record. A mark has `hook` MARK, its operation's name in `first` and `second`, and in `caller` the number of
 * iterations times 4, plus 0 at the begin of the operation, 1 at its end, 2 between two iterations. A record with
 * `hook` PER_CPU has the offset of the CPU's variables in `first`. A record with `hook` SECTION is a section with the
 * lock `first` that `caller` took: its own instructions in `kernel`, and counts of 16 bits from the lowest. In `user`:
 * lines loaded, stored, own, cold. In `second`: lines shared, elsewhere, struct pages stored, and 1 if another CPU held
 * the lock before, plus 2 if it was waited for. A record with `hook` COUNT precedes a mark: function number `second`
 * was entered `first` times since the machine's start. */
struct record { uint64_t kernel, user, first, second, caller; uint32_t cpu, hook; };
enum { MARK = 0xffffffff, PER_CPU = 0xfffffffe, SECTION = 0xfffffffd, COUNT = 0xfffffffc };
enum { BEGIN = 0, END = 1, ITERATION = 2, SYMBOLS = 3, CPUS_MAX = 64, SLOTS = 1 << 12 };

static struct { uint64_t address; uintptr_t number; } hooks[SLOTS];
static char kinds[SLOTS];
static struct { void *di, *si, *dx, *sp, *gs, *kernel_gs; GByteArray *bytes; } registers[CPUS_MAX];
static uint64_t mark_address, per_cpu_address;
static const char *symbols_path;
static FILE *out;
static counter kernel, user;
/* For `lines`: the CPU that executes, its instructions in kernel and user mode, and the base of its variables, by which
 * it is known. QEMU passes callbacks the CPU that a block was translated for, if one thread executes all CPUs. */
static unsigned executing;
static uint64_t executed[LINES_CPUS][2], bases[LINES_CPUS];
/* For `counts`: entries of each function. */
static uint64_t entered[SLOTS];
static bool recording, of_lines, of_counts, following;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static uint64_t read_number(unsigned cpu, void *handle)
{
    uint64_t value = 0;
    GByteArray *bytes = registers[cpu].bytes;
    g_byte_array_set_size(bytes, 0);
    qemu_plugin_read_register(handle, bytes);
    memcpy(&value, bytes->data, bytes->len < 8 ? bytes->len : 8);
    return value;
}

static bool read_memory(unsigned cpu, uint64_t address, void *into, size_t length)
{
    GByteArray *bytes = registers[cpu].bytes;
    g_byte_array_set_size(bytes, length);
    if (!qemu_plugin_read_memory_vaddr(address, bytes, length))
        return false;
    memcpy(into, bytes->data, length);
    return true;
}

static void write_record(struct record *record, unsigned cpu)
{
    if (registers[cpu].bytes) {
        record->kernel = qemu_plugin_u64_get(kernel, cpu);
        record->user = qemu_plugin_u64_get(user, cpu);
    }
    record->cpu = cpu;
    pthread_mutex_lock(&writing);
    fwrite(record, sizeof *record, 1, out);
    pthread_mutex_unlock(&writing);
}

/* A block of instructions: their number times 2, plus 1 for user mode, where SWAPGS has put the base elsewhere. */
static void on_block(unsigned cpu, void *about)
{
    uintptr_t mode = (uintptr_t)about & 1;
    if (!following)
        return;
    uint64_t base = read_number(cpu, mode ? registers[cpu].kernel_gs : registers[cpu].gs);
    if (base != bases[executing] && (int64_t)base < 0) {
        unsigned number = 0;
        while (number < LINES_CPUS - 1 && bases[number] && bases[number] != base)
            number++;
        bases[executing = number] = base;
    }
    executed[executing][mode] += (uintptr_t)about >> 1;
}

static void write_section(const struct section *section)
{
    const unsigned *lines = section->of_class, each[] = { section->loaded, section->stored, lines[OWN], lines[COLD],
        lines[SHARED], lines[ELSEWHERE], section->pages, section->moved | section->contended << 1 };
    uint64_t packed[2] = { 0 };
    for (unsigned i = 0; i < 8; i++)
        packed[i / 4] |= (uint64_t)(each[i] < 0xffff ? each[i] : 0xffff) << 16 * (i % 4);
    struct record record = { section->nested, packed[0], section->lock, packed[1], section->caller, executing, SECTION };
    fwrite(&record, sizeof record, 1, out);
}

static void on_section(unsigned cpu, char kind)
{
    if (!following)
        return;
    uint64_t lock = read_number(cpu, registers[cpu].di), now = executed[executing][0], caller = 0;
    struct section done;
    if (kind == 'l') {
        read_memory(cpu, read_number(cpu, registers[cpu].sp), &caller, sizeof caller);
        lines_lock(executing, lock, caller, now, executed[executing][1]);
    } else if (kind == 'w')
        lines_contended(executing);
    else if (kind == 'u' && lines_unlock(executing, lock, now, &done) && recording)
        write_section(&done);
}

static void on_load(unsigned cpu, uint32_t about, uint64_t address, void *unused)
{
    (void)cpu, (void)about, (void)unused;
    if (following)
        lines_access(executing, address, false);
}

static void on_store(unsigned cpu, uint32_t about, uint64_t address, void *unused)
{
    (void)cpu, (void)about, (void)unused;
    if (following)
        lines_access(executing, address, true);
}

static void on_hook(unsigned cpu, void *number)
{
    if (of_lines)
        return on_section(cpu, kinds[(uintptr_t)number]);
    if (!recording || cpu >= CPUS_MAX)
        return;
    struct record record = { .hook = (uint32_t)(uintptr_t)number };
    record.first = read_number(cpu, registers[cpu].di);
    record.second = read_number(cpu, registers[cpu].si);
    read_memory(cpu, read_number(cpu, registers[cpu].sp), &record.caller, sizeof record.caller);
    write_record(&record, cpu);
}

static void on_entry(unsigned cpu, void *number)
{
    (void)cpu;
    entered[(uintptr_t)number]++;
}

static void write_counts(unsigned cpu)
{
    for (unsigned number = 0; number < SLOTS; number++) {
        struct record record = { .hook = COUNT, .first = entered[number], .second = number };
        if (record.first)
            write_record(&record, cpu);
    }
}

/* mark(kind, name, iterations), or mark(SYMBOLS, text, length). */
static void on_mark(unsigned cpu, void *unused)
{
    (void)unused;
    uint64_t kind = read_number(cpu, registers[cpu].di), text = read_number(cpu, registers[cpu].si);
    uint64_t count = read_number(cpu, registers[cpu].dx);
    if (kind == SYMBOLS) {
        FILE *file = fopen(symbols_path, "wb");
        char part[4096];
        for (uint64_t at = 0; file && at < count; at += sizeof part) {
            size_t length = count - at < sizeof part ? count - at : sizeof part;
            if (!read_memory(cpu, text + at, part, length))
                break;
            fwrite(part, length, 1, file);
        }
        if (file)
            fclose(file);
        return;
    }
    for (unsigned i = 0; kind == BEGIN && per_cpu_address && i < CPUS_MAX; i++) {
        struct record offset = { .hook = PER_CPU };
        if (read_memory(cpu, per_cpu_address + 8 * i, &offset.first, 8))
            write_record(&offset, i);
    }
    if (of_counts)
        write_counts(cpu);
    struct record record = { .hook = MARK, .caller = count * 4 + kind };
    read_memory(cpu, text, &record.first, 16);
    recording = kind != END;
    following = of_lines;
    write_record(&record, cpu);
}

static void on_cpu_start(unsigned cpu, void *unused)
{
    (void)unused;
    if (cpu >= CPUS_MAX)
        return;
    GArray *all = qemu_plugin_get_registers();
    descriptor *each = (descriptor *)all->data;
    for (unsigned i = 0; i < all->len; i++) {
        if (!strcmp(each[i].name, "rdi")) registers[cpu].di = each[i].handle;
        if (!strcmp(each[i].name, "rsi")) registers[cpu].si = each[i].handle;
        if (!strcmp(each[i].name, "rdx")) registers[cpu].dx = each[i].handle;
        if (!strcmp(each[i].name, "rsp")) registers[cpu].sp = each[i].handle;
        if (!strcmp(each[i].name, "gs_base")) registers[cpu].gs = each[i].handle;
        if (!strcmp(each[i].name, "k_gs_base")) registers[cpu].kernel_gs = each[i].handle;
    }
    registers[cpu].bytes = g_byte_array_new();
}

static size_t slot_of(uint64_t address)
{
    size_t slot = (address * 0x9e3779b97f4a7c15u) >> 52;
    while (hooks[slot].address && hooks[slot].address != address)
        slot = (slot + 1) % SLOTS;
    return slot;
}

/* Older interfaces pass (id, block), newer ones (block, data). An id is a small number. */
static void on_translation(uint64_t one, uint64_t other)
{
    struct block *block = (struct block *)(one > 0xffff ? one : other);
    size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; i++) {
        struct instruction *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        size_t slot = slot_of(address);
        if (i == 0 && of_lines)
            qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, READS_REGISTERS, (void *)(count * 2 + ((int64_t)address >= 0)));
        else if (i == 0 && !of_counts)
            qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, ADD_U64, (int64_t)address < 0 ? kernel : user, count);
        if (address && address == mark_address)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, READS_REGISTERS, NULL);
        else if (address && hooks[slot].address == address && of_counts)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_entry, NO_REGISTERS, (void *)hooks[slot].number);
        else if (address && hooks[slot].address == address)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_hook, READS_REGISTERS, (void *)hooks[slot].number);
        if (of_lines && (int64_t)address < 0) {
            qemu_plugin_register_vcpu_mem_cb(instruction, on_load, NO_REGISTERS, LOADS, NULL);
            qemu_plugin_register_vcpu_mem_cb(instruction, on_store, NO_REGISTERS, STORES, NULL);
        }
    }
}

static void on_exit_of_machine(uint64_t one, uint64_t other)
{
    (void)one, (void)other;
    if (out)
        fclose(out);
    out = NULL;
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value++)
            return 1;
        if (!strncmp(arguments[i], "out=", 4))
            out = fopen(value, "wb");
        else if (!strncmp(arguments[i], "symbols=", 8))
            symbols_path = value;
        else if (!strncmp(arguments[i], "percpu=", 7))
            per_cpu_address = strtoull(value, NULL, 16);
        else if (!strncmp(arguments[i], "marks=", 6))
            mark_address = strtoull(value, NULL, 16);
        else if (!strncmp(arguments[i], "lines=", 6))
            of_lines = *value == '1';
        else if (!strncmp(arguments[i], "counts=", 7))
            of_counts = *value == '1';
        else if (!strncmp(arguments[i], "hooks=", 6)) {
            FILE *file = fopen(value, "r");
            unsigned long long address;
            unsigned number;
            char kind;
            while (file && fscanf(file, "%llx %u %c", &address, &number, &kind) == 3 && number < SLOTS) {
                size_t slot = slot_of(address);
                hooks[slot].address = address;
                hooks[slot].number = number;
                kinds[number] = kind;
            }
            if (!file)
                return 1;
            fclose(file);
        }
    }
    if (!out || !symbols_path)
        return 1;
    kernel.score = user.score = qemu_plugin_scoreboard_new(2 * sizeof(uint64_t));
    user.offset = sizeof(uint64_t);
    qemu_plugin_register_vcpu_init_cb(id, on_cpu_start, NULL);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation, NULL);
    qemu_plugin_register_atexit_cb(id, on_exit_of_machine, NULL);
    return 0;
}
