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
 *
 * Writes are pwrite64, pwritev64v2 and io_submit; the last is made by number through syscall().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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

__attribute__((constructor)) static void begin(void)
{
    next_syscall = dlsym(RTLD_NEXT, "syscall");
    next_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    next_pwritev2 = dlsym(RTLD_NEXT, "pwritev64v2");
    next_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
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

/* Whether this write must obey an order, which is thereby taken away. */
static int claim(int fd, struct order *order)
{
    if (!look(order) || strcmp(order->kind, "slow") == 0 || !of_volume(fd))
        return 0;
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

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    struct order order;
    if (claim(fd, &order))
        return obey(fd, data, size, offset, &order);
    tarry();
    return next_pwrite(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite64(fd, data, size, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    struct order order;
    if (count == 1 && claim(fd, &order))
        return obey(fd, parts->iov_base, parts->iov_len, offset, &order);
    tarry();
    return next_pwritev2(fd, parts, count, offset, flags);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return pwritev64v2(fd, parts, count, offset, flags);
}

int fdatasync(int fd)
{
    if (of_volume(fd))
        tarry();
    return next_fdatasync(fd);
}

/* Many writes at once. One that must fail or be lost is submitted all the same, and its result is
 * put in when the kernel gives it back. */
static long submit(long context, long count, struct iocb **writes)
{
    struct order order;
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
    for (long i = 0; i < ended; i++)
        for (int k = 0; k < failed_count; k++)
            if ((int64_t)events[i].data == failed_data[k]) {
                events[i].res = failed_result;
                failed_data[k] = failed_data[--failed_count];
                break;
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
