/* Loaded into a replica before the C library: its disk fails in ways that the kernel cannot be
 * asked for.
 *
 * DISK_SHIM_ORDER names a file. While it does not exist every call goes through untouched. Once it
 * does, the next write to a volume takes it away (so that one order is one fault) and obeys; an
 * order of "slow" stays, and delays each flush, until somebody else removes it.
 *
 *     error N     the write ends with errno N: in an asynchronous call as its result
 *     short       only a prefix of whole sectors is written, and that is what the call tells
 *     prefix N    a prefix is written, then the process is killed; N seeds the chance
 *     subset N    sectors by chance are written, then the process is killed
 *     lost        nothing is written, and the call tells that all was
 *     slow MS     flushes and durable writes take so much longer
 *     flush       the next flush fails with EIO, and what was not durable by then is lost
 *
 * Writes are pwrite64, pwritev64v2 and io_submit; the last is made by number through syscall().
 * What of them is durable, and what the power would take, is kept by disk_cache.c.
 */
#define _GNU_SOURCE
#include "disk_cache.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SECTOR 4096
#define FAILED_MAX 64

struct order {
    char kind[16];
    long value;
};

static __thread int64_t failed_data[FAILED_MAX];
static __thread long failed_result;
static __thread int failed_count;

static long (*next_syscall)(long, ...);
static ssize_t (*next_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*next_pwritev2)(int, const struct iovec *, int, off_t, int);
static int (*next_fdatasync)(int);
static int (*next_fsync)(int);
static int (*next_rename)(const char *, const char *);
static ssize_t (*next_write)(int, const void *, size_t);
static ssize_t (*next_writev)(int, const struct iovec *, int);

__attribute__((constructor)) static void begin(void)
{
    next_syscall = dlsym(RTLD_NEXT, "syscall");
    next_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    next_pwritev2 = dlsym(RTLD_NEXT, "pwritev64v2");
    next_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    next_fsync = dlsym(RTLD_NEXT, "fsync");
    next_rename = dlsym(RTLD_NEXT, "rename");
    next_write = dlsym(RTLD_NEXT, "write");
    next_writev = dlsym(RTLD_NEXT, "writev");
}

static int of_volume(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return strstr(path, "/shard-") != NULL;
}

static int look(struct order *order)
{
    const char *path = getenv("DISK_SHIM_ORDER");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    int count = fscanf(file, "%15s %ld", order->kind, &order->value);
    fclose(file);
    if (count < 2)
        order->value = 0;
    return count >= 1;
}

static int take_away(void);

/* Whether this write must obey an order, which is thereby taken away. */
static int claim(int fd, struct order *order)
{
    if (!look(order) || strcmp(order->kind, "slow") == 0 || strcmp(order->kind, "flush") == 0 ||
        !of_volume(fd))
        return 0;
    return take_away();
}

static int take_away(void)
{
    char done[4096];
    snprintf(done, sizeof done, "%s.done", getenv("DISK_SHIM_ORDER"));
    return rename(getenv("DISK_SHIM_ORDER"), done) == 0;
}

static void tarry(void)
{
    struct order order;
    if (look(&order) && strcmp(order.kind, "slow") == 0) {
        struct timespec pause = {order.value / 1000, order.value % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
}

static unsigned chance(long *state)
{
    *state = *state * 6364136223846793005L + 1442695040888963407L;
    return (unsigned)((unsigned long)*state >> 33);
}

/* Write a part of what was wanted: sectors up to a place, or each by chance. */
static void tear(int fd, const char *data, size_t size, off_t offset, struct order *order)
{
    size_t sectors = size / SECTOR;
    size_t keep = sectors ? chance(&order->value) % sectors : 0;
    for (size_t i = 0; i < sectors; i++) {
        int kept = strcmp(order->kind, "subset") == 0 ? chance(&order->value) & 1 : i < keep;
        if (kept)
            next_pwrite(fd, data + i * SECTOR, SECTOR, offset + i * SECTOR);
    }
}

static int is(const struct order *order, const char *kind)
{
    return strcmp(order->kind, kind) == 0;
}

static int deadly(const struct order *order)
{
    return is(order, "prefix") || is(order, "subset");
}

/* One write by itself: its result. */
static ssize_t obey(int fd, const char *data, size_t size, off_t offset, struct order *order)
{
    if (is(order, "error")) {
        errno = (int)order->value;
        return -1;
    }
    if (is(order, "lost"))
        return (ssize_t)size;
    if (is(order, "short"))
        return size > SECTOR ? next_pwrite(fd, data, size / SECTOR / 2 * SECTOR, offset) : 0;
    tear(fd, data, size, offset, order);
    raise(SIGKILL);
    return -1;
}

static int syncs(int fd)
{
    return fcntl(fd, F_GETFL) & O_DSYNC;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    struct order order;
    uint64_t number = cache_before(fd, offset, size);
    ssize_t written;
    if (claim(fd, &order)) {
        written = obey(fd, data, size, offset, &order);
    } else {
        tarry();
        written = next_pwrite(fd, data, size, offset);
    }
    cache_after(number, fd, offset, size, written == (ssize_t)size, syncs(fd));
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite64(fd, data, size, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    struct order order;
    size_t size = count == 1 ? parts->iov_len : 0;
    uint64_t number = size ? cache_before(fd, offset, size) : 0;
    ssize_t written;
    if (count == 1 && claim(fd, &order)) {
        written = obey(fd, parts->iov_base, size, offset, &order);
    } else {
        tarry();
        written = next_pwritev2(fd, parts, count, offset, flags);
    }
    cache_after(number, fd, offset, size, written == (ssize_t)size,
                syncs(fd) || (flags & RWF_DSYNC));
    return written;
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return pwritev64v2(fd, parts, count, offset, flags);
}

static int flush(int fd, int (*next)(int))
{
    struct order order;
    uint64_t covered = cache_flush_begin();
    if (of_volume(fd)) {
        if (look(&order) && is(&order, "flush") && take_away()) {
            cache_dropped();
            errno = EIO;
            return -1;
        }
        tarry();
    }
    int failed = next(fd);
    if (!failed)
        cache_flushed(fd, covered);
    return failed;
}

int fdatasync(int fd)
{
    return flush(fd, next_fdatasync);
}

int fsync(int fd)
{
    return flush(fd, next_fsync);
}

int rename(const char *from, const char *to)
{
    int failed = next_rename(from, to);
    if (!failed)
        cache_named(to);
    return failed;
}

ssize_t write(int fd, const void *data, size_t size)
{
    cache_sends(fd, data, size);
    if (!next_write) /* another library begins before this one */
        next_write = dlsym(RTLD_NEXT, "write");
    return next_write(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    for (int i = 0; i < count; i++)
        cache_sends(fd, parts[i].iov_base, parts[i].iov_len);
    if (!next_writev)
        next_writev = dlsym(RTLD_NEXT, "writev");
    return next_writev(fd, parts, count);
}

/* Many writes at once. One that must fail or be lost is submitted all the same, and its result is
 * put in when the kernel gives it back. */
static __thread struct {
    struct iocb *write;
    uint64_t number;
    size_t size;
} started[FAILED_MAX];

static void start(long count, struct iocb **writes)
{
    for (long i = 0, k = 0; i < count && k < FAILED_MAX; k++)
        if (!started[k].write || started[k].write == writes[i]) {
            struct iocb *write = writes[i++];
            started[k].write = write;
            started[k].size = write->aio_nbytes;
            started[k].number =
                cache_before((int)write->aio_fildes, write->aio_offset, write->aio_nbytes);
        }
}

static void finish(struct io_event *event)
{
    for (int k = 0; k < FAILED_MAX; k++)
        if ((uint64_t)(uintptr_t)started[k].write == event->obj) {
            struct iocb *write = started[k].write;
            int fd = (int)write->aio_fildes;
            cache_after(started[k].number, fd, write->aio_offset, started[k].size,
                        event->res == (int64_t)started[k].size,
                        (write->aio_rw_flags & RWF_DSYNC) || syncs(fd));
            started[k].write = NULL;
            break;
        }
}

static long submit(long context, long count, struct iocb **writes)
{
    struct order order;
    if (count > 0)
        start(count, writes);
    if (count < 1 || !claim((int)writes[0]->aio_fildes, &order))
        return next_syscall(SYS_io_submit, context, count, writes);
    for (long i = 0; i < count; i++) {
        struct iocb *write = writes[i];
        if (deadly(&order))
            tear((int)write->aio_fildes, (const char *)write->aio_buf, write->aio_nbytes,
                 write->aio_offset, &order);
        else if (is(&order, "short"))
            write->aio_nbytes = write->aio_nbytes / SECTOR / 2 * SECTOR;
        else if (failed_count < FAILED_MAX) {
            failed_data[failed_count++] = (int64_t)write->aio_data;
            failed_result = is(&order, "lost") ? (long)write->aio_nbytes : -order.value;
            if (is(&order, "lost"))
                write->aio_nbytes = 0;
            break; /* one of them is enough */
        }
    }
    if (deadly(&order))
        raise(SIGKILL);
    return next_syscall(SYS_io_submit, context, count, writes);
}

static long collect(long context, long least, long most, struct io_event *events, void *timeout)
{
    long ended = next_syscall(SYS_io_getevents, context, least, most, events, timeout);
    for (long i = 0; i < ended; i++) {
        finish(&events[i]);
        for (int k = 0; k < failed_count; k++)
            if ((int64_t)events[i].data == failed_data[k]) {
                events[i].res = failed_result;
                failed_data[k] = failed_data[--failed_count];
                break;
            }
    }
    return ended;
}

long syscall(long number, ...)
{
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_submit)
        return submit(a[0], a[1], (struct iocb **)a[2]);
    if (number == SYS_io_getevents)
        return collect(a[0], a[1], a[2], (struct io_event *)a[3], (void *)a[4]);
    return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
