/* A plugin of QEMU's TCG that records what a stock kernel locks.
 *
 * Arguments: hooks=FILE with lines "ADDRESS NUMBER" (hexadecimal, decimal): functions whose entries are recorded.
 *            percpu=ADDRESS: the kernel's array of offsets of per-CPU variables.
 *            marks=ADDRESS: the entry of the measuring program's function mark().
 *            out=FILE: the records.  symbols=FILE: where a text that the program hands over is written.
 *
 * QEMU's package has no header, so the few functions used here are declared by hand (plugin interface 7).
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
void qemu_plugin_register_vcpu_init_cb(uint64_t id, on_cpu callback, void *data);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*callback)(uint64_t, uint64_t), void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct instruction *, on_cpu callback, int flags, void *data);
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
 * `hook` PER_CPU has the offset of the CPU's variables in `first`. */
struct record { uint64_t kernel, user, first, second, caller; uint32_t cpu, hook; };
enum { MARK = 0xffffffff, PER_CPU = 0xfffffffe, BEGIN = 0, END = 1, ITERATION = 2, SYMBOLS = 3, CPUS_MAX = 64, SLOTS = 1 << 12 };

static struct { uint64_t address; uintptr_t number; } hooks[SLOTS];
static struct { void *di, *si, *dx, *sp; GByteArray *bytes; } registers[CPUS_MAX];
static uint64_t mark_address, per_cpu_address;
static const char *symbols_path;
static FILE *out;
static counter kernel, user;
static bool recording;
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

static void on_hook(unsigned cpu, void *number)
{
    if (!recording || cpu >= CPUS_MAX)
        return;
    struct record record = { .hook = (uint32_t)(uintptr_t)number };
    record.first = read_number(cpu, registers[cpu].di);
    record.second = read_number(cpu, registers[cpu].si);
    read_memory(cpu, read_number(cpu, registers[cpu].sp), &record.caller, sizeof record.caller);
    write_record(&record, cpu);
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
    struct record record = { .hook = MARK, .caller = count * 4 + kind };
    read_memory(cpu, text, &record.first, 16);
    recording = kind != END;
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
        if (i == 0)
            qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, ADD_U64, (int64_t)address < 0 ? kernel : user, count);
        if (address && address == mark_address)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, READS_REGISTERS, NULL);
        else if (address && hooks[slot].address == address)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_hook, READS_REGISTERS, (void *)hooks[slot].number);
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
        else if (!strncmp(arguments[i], "hooks=", 6)) {
            FILE *file = fopen(value, "r");
            unsigned long long address;
            unsigned number;
            while (file && fscanf(file, "%llx %u", &address, &number) == 2) {
                size_t slot = slot_of(address);
                hooks[slot].address = address;
                hooks[slot].number = number;
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
