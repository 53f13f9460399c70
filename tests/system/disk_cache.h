/* The volatile cache of a disk, played beside the files of a volume.
 *
 * DISK_SHIM_CACHE names a file, shared by all processes that use the volume one after the other:
 * the device outlives whoever is killed. Before a write to a volume leaves, the bytes that lie
 * there durably are kept in it, once for each sector; the call that makes a sector durable gives
 * them up. Who cuts the power puts back what is still kept: `tests/system/power.py`.
 *
 *     durable by    a write to a descriptor opened with O_DSYNC, or with RWF_DSYNC: itself alone
 *                   fdatasync, fsync: what was written to that file before the call
 *                   fsync of a folder: the names that files in it were given before
 *
 * DISK_SHIM_TRACE names a file to which each step is written, a line each, in order:
 *
 *     W n path offset size    write n has returned, or its completion was collected
 *     D n                     and is durable
 *     F path n                a flush of a file has returned, begun after write n and all before
 *     S hex                   bytes are about to leave through a Unix socket: the first of them
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes are about to be written: the number of the write, 0 when nobody keeps count. */
uint64_t cache_before(int fd, uint64_t offset, size_t size);
/* Write `number` has ended; `done` = all of it was written; `durable` = by itself. */
void cache_after(uint64_t number, int fd, uint64_t offset, size_t size, int done, int durable);
/* A flush begins: what it will cover. */
uint64_t cache_flush_begin(void);
/* It has succeeded. */
void cache_flushed(int fd, uint64_t covered);
/* A flush has failed: nobody knows what of the cache the medium has. */
void cache_dropped(void);
/* A file was given a name. */
void cache_named(const char *path);
/* Bytes are about to leave through a socket. */
void cache_sends(int fd, const void *data, size_t size);
