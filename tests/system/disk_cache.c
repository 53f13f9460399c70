/* See disk_cache.h. The kept sectors lie in one file that is mapped by whoever uses it:
 *
 *     head (4096) | paths of files | paths of new names | entries | bytes of the entries
 */
#define _GNU_SOURCE
#include "disk_cache.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECTOR 4096
#define ENTRIES 16384
#define FILES 128 /* a volume of 64 extents, and its other files */
#define NAMES 64
#define PATH 256
#define CHAINS 8192
#define SENT 16384 /* bytes of one send that the trace shows */

struct entry {
    uint32_t used, file;
    uint64_t offset, written, ended; /* newest write that touched it; the same once it ended */
};

struct cache {
    uint64_t count; /* of writes, so far */
    char rest[SECTOR - 8];
    char files[FILES][PATH];
    char names[NAMES][PATH];
    struct entry entries[ENTRIES];
    unsigned char bytes[ENTRIES][SECTOR];
};

static struct cache *cache;
static int trace = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int heads[CHAINS], following[ENTRIES], unused; /* -1 ends a chain */
static unsigned char aligned[SECTOR] __attribute__((aligned(SECTOR)));

static unsigned chain_of(uint32_t file, uint64_t offset)
{
    return (unsigned)(offset / SECTOR * 31 + file) % CHAINS;
}

static void link_entry(int i)
{
    unsigned chain = chain_of(cache->entries[i].file, cache->entries[i].offset);
    following[i] = heads[chain];
    heads[chain] = i;
}

static void fail(const char *what)
{
    fprintf(stderr, "disk_cache: %s\n", what);
    _exit(99);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DISK_SHIM_TRACE");
    if (path)
        trace = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    path = getenv("DISK_SHIM_CACHE");
    if (!path)
        return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *cache) != 0)
        fail("its file cannot be made");
    cache = mmap(NULL, sizeof *cache, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (cache == MAP_FAILED)
        fail("its file cannot be mapped");
    memset(heads, -1, sizeof heads);
    unused = -1;
    for (int i = ENTRIES - 1; i >= 0; i--) {
        if (cache->entries[i].used) {
            cache->entries[i].ended = cache->entries[i].written; /* the kernel finished it */
            link_entry(i);
        } else {
            following[i] = unused;
            unused = i;
        }
    }
}

/* The path of an open file of a volume; 0 for any other, and for one without its name yet. */
static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    if (strncmp(path, "/dev/loop", strlen("/dev/loop")) == 0)
        return 1; /* a volume on a device: of those no other is opened */
    return strstr(path, "/shard-") != NULL && strcmp(path + size - 4, ".new") != 0;
}

static int file_of(const char *path)
{
    for (int i = 0; i < FILES; i++) {
        if (!cache->files[i][0])
            strcpy(cache->files[i], path);
        if (strcmp(cache->files[i], path) == 0)
            return i;
    }
    fail("too many files");
    return -1;
}

static int find(uint32_t file, uint64_t offset)
{
    int i = heads[chain_of(file, offset)];
    while (i >= 0 && (cache->entries[i].file != file || cache->entries[i].offset != offset))
        i = following[i];
    return i;
}

static void give_up(int i)
{
    int *place = &heads[chain_of(cache->entries[i].file, cache->entries[i].offset)];
    while (*place != i)
        place = &following[*place];
    *place = following[i];
    cache->entries[i].used = 0;
    following[i] = unused;
    unused = i;
}

static void tell(const char *line, int size)
{
    if (trace >= 0 && syscall(SYS_write, trace, line, size) != size)
        fail("the trace cannot be written");
}

uint64_t cache_before(int fd, uint64_t offset, size_t size)
{
    char path[PATH];
    if (!cache || !path_of(fd, path))
        return 0;
    pthread_mutex_lock(&lock);
    uint64_t number = ++cache->count;
    uint32_t file = (uint32_t)file_of(path);
    for (uint64_t at = offset; at < offset + size; at += SECTOR) {
        int i = find(file, at);
        if (i < 0) {
            i = unused;
            if (i < 0)
                fail("too much is not durable");
            unused = following[i];
            if (syscall(SYS_pread64, fd, aligned, SECTOR, at) != SECTOR)
                fail("a sector cannot be read");
            memcpy(cache->bytes[i], aligned, SECTOR);
            cache->entries[i] = (struct entry){0, file, at, 0, 0};
            link_entry(i);
            __sync_synchronize();
            cache->entries[i].used = 1;
        }
        cache->entries[i].written = number;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void cache_after(uint64_t number, int fd, uint64_t offset, size_t size, int done, int durable)
{
    char path[PATH], line[PATH + 128];
    if (!number || !path_of(fd, path))
        return;
    pthread_mutex_lock(&lock);
    uint32_t file = (uint32_t)file_of(path);
    for (uint64_t at = offset; at < offset + size; at += SECTOR) {
        int i = find(file, at);
        if (i < 0 || cache->entries[i].written != number)
            continue;
        cache->entries[i].ended = number;
        if (done && durable)
            give_up(i);
    }
    tell(line, snprintf(line, sizeof line, "W %lu %s %lu %lu\n", number, path, offset, size));
    if (done && durable)
        tell(line, snprintf(line, sizeof line, "D %lu\n", number));
    pthread_mutex_unlock(&lock);
}

uint64_t cache_flush_begin(void)
{
    return cache ? __atomic_load_n(&cache->count, __ATOMIC_SEQ_CST) : 0;
}

void cache_flushed(int fd, uint64_t covered)
{
    char path[PATH], line[PATH + 64];
    if (!cache || !path_of(fd, path))
        return;
    pthread_mutex_lock(&lock);
    size_t size = strlen(path);
    for (int i = 0; i < NAMES; i++)
        if (strncmp(cache->names[i], path, size) == 0 && cache->names[i][size] == '/')
            cache->names[i][0] = 0;
    struct stat about;
    if (fstat(fd, &about) == 0 && !S_ISDIR(about.st_mode)) {
        uint32_t file = (uint32_t)file_of(path);
        for (int i = 0; i < ENTRIES; i++) {
            struct entry *entry = &cache->entries[i];
            if (entry->used && entry->file == file && entry->written <= covered &&
                entry->ended == entry->written)
                give_up(i);
        }
        tell(line, snprintf(line, sizeof line, "F %s %lu\n", path, covered));
    }
    pthread_mutex_unlock(&lock);
}

void cache_dropped(void)
{
    if (!cache)
        return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ENTRIES; i++) {
        struct entry *entry = &cache->entries[i];
        if (!entry->used || entry->ended != entry->written)
            continue;
        int fd = open(cache->files[entry->file], O_WRONLY | O_DIRECT | O_CLOEXEC);
        memcpy(aligned, cache->bytes[i], SECTOR);
        if (fd < 0 || syscall(SYS_pwrite64, fd, aligned, SECTOR, entry->offset) != SECTOR)
            fail("what was lost cannot be put back");
        close(fd);
        give_up(i);
    }
    pthread_mutex_unlock(&lock);
}

void cache_named(const char *path)
{
    size_t size = strlen(path);
    if (!cache || !strstr(path, "/segments/") || size >= PATH ||
        strcmp(path + size - 4, ".new") == 0)
        return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < NAMES; i++)
        if (!cache->names[i][0]) {
            strcpy(cache->names[i], path);
            break;
        }
    pthread_mutex_unlock(&lock);
}

void cache_sends(int fd, const void *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    char line[2 * SENT + 8];
    memcpy(line, "S ", 2);
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (trace < 0 || getsockname(fd, (struct sockaddr *)&address, &length) != 0 ||
        address.ss_family != AF_UNIX)
        return;
    int at = 2;
    for (size_t i = 0; i < size && i < SENT; i++) {
        line[at++] = digits[((const unsigned char *)data)[i] >> 4];
        line[at++] = digits[((const unsigned char *)data)[i] & 15];
    }
    line[at++] = '\n';
    pthread_mutex_lock(&lock);
    tell(line, at);
    pthread_mutex_unlock(&lock);
}
