/* Stands between a process and its disk (LD_PRELOAD): records every change of the files below one directory, and fails
 * calls as it is told to. The rest of the harness is in mod.rs and model.rs beside this.
 *
 * DISK_ROOT     the directory; files elsewhere are left alone
 * DISK_TRACE    where the changes are recorded, in the order in which they were made; none if it is not set
 * DISK_CONTROL  a file of one page, mapped by this process and written by the test: see `struct control`
 *
 * Always true: a record is in the trace before the call it records returns. A record of a sync has two halves: what was
 * written before the first one is durable once the second one is there.
 *
 * Not here: writes through a mapping, which the server does not do. The test compares the recorded state with the
 * directory itself, so that a call that went past this file is found.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    volatile uint64_t no_sync;       /* 1: syncs do nothing, say yes, and are not recorded */
    volatile uint64_t write_fail_at; /* the n-th write from now fails; 0: none */
    volatile uint64_t write_errno;
    volatile uint64_t sync_fail_at; /* the n-th sync from now fails; 0: none */
    volatile uint64_t sync_errno;
    volatile uint64_t full_at; /* at the n-th call from now that needs room the disk becomes full; 0: never */
    volatile uint64_t full;    /* 1: calls that need room fail with ENOSPC, and no space is free */
    volatile uint64_t fired;   /* failures so far */
    volatile uint64_t writes;  /* calls that were counted */
    volatile uint64_t syncs;
    volatile uint64_t rooms;
    volatile uint64_t sends; /* calls on sockets that sent something */
    volatile uint64_t receives;
    volatile uint64_t low; /* 1: little space is free, though calls that need room still find it */
};

enum { CREATE = 1, MKDIR, WRITE, ZEROS, TRUNCATE, SYNC_BEGIN, SYNC_END, RENAME, UNLINK, UNLINK_AT, RMDIR, RMDIR_AT, LINK };

struct record {
    uint32_t bytes; /* of the whole record */
    uint32_t op;
    uint64_t inode;
    uint64_t offset;
    uint64_t length;
    uint32_t path;  /* bytes of the first name */
    uint32_t other; /* bytes of the second */
};

#define FDS 65536
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_len;
static int trace = -1;
static uint64_t sync_number;
static unsigned char tracked[FDS];
static struct control nothing;
static struct control *control = &nothing;

#define REAL(name) ((__typeof__(&name))real(#name, &real_##name))
#define SLOT(name) static void *real_##name
SLOT(open); SLOT(open64); SLOT(openat64); SLOT(write); SLOT(writev); SLOT(pwrite64);
SLOT(ftruncate64); SLOT(fsync); SLOT(fdatasync); SLOT(rename); SLOT(renameat); SLOT(unlink);
SLOT(unlinkat); SLOT(mkdir); SLOT(rmdir); SLOT(link); SLOT(linkat); SLOT(close); SLOT(fcntl); SLOT(fcntl64);
SLOT(statvfs); SLOT(statvfs64); SLOT(send); SLOT(sendmsg); SLOT(recv); SLOT(copy_file_range);
SLOT(sendfile64);

static void *real(const char *name, void **slot) {
    if (!*slot) *slot = dlsym(RTLD_NEXT, name);
    return *slot;
}

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("DISK_ROOT");
    if (!at) return;
    strncpy(root, at, sizeof root - 1);
    root_len = strlen(root);
    const char *page = getenv("DISK_CONTROL");
    if (page) {
        int fd = REAL(open)(page, O_RDWR | O_CLOEXEC);
        void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) abort();
        control = mapped;
        REAL(close)(fd);
    }
    const char *to = getenv("DISK_TRACE");
    if (to) {
        trace = REAL(open)(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (trace < 0) abort();
    }
}

/* The name below the root, or none. */
static const char *below(const char *path) {
    if (!root_len || strncmp(path, root, root_len)) return NULL;
    if (path[root_len] == '/') return path + root_len + 1;
    return path[root_len] ? NULL : path + root_len;
}

static int is_tracked(int fd) { return fd >= 0 && fd < FDS && tracked[fd]; }
static void track(int fd, int yes) {
    if (fd >= 0 && fd < FDS) tracked[fd] = (unsigned char)yes;
}

static uint64_t inode_of(int fd, struct stat *facts) {
    return fstat(fd, facts) ? 0 : facts->st_ino;
}

static void note(uint32_t op, uint64_t inode, uint64_t offset, uint64_t length, const char *path, const char *other,
                 const struct iovec *data, int parts) {
    if (trace < 0) return;
    struct record head = {0, op, inode, offset, length, path ? strlen(path) : 0, other ? strlen(other) : 0};
    struct iovec out[3 + 64];
    int count = 0;
    out[count++] = (struct iovec){&head, sizeof head};
    if (path) out[count++] = (struct iovec){(void *)path, head.path};
    if (other) out[count++] = (struct iovec){(void *)other, head.other};
    uint64_t bytes = sizeof head + head.path + head.other, left = data ? length : 0;
    for (int i = 0; i < parts && left; i++) {
        size_t step = data[i].iov_len < left ? data[i].iov_len : left;
        if (!step) continue;
        if (count == 3 + 64) abort();
        out[count++] = (struct iovec){data[i].iov_base, step};
        left -= step;
        bytes += step;
    }
    head.bytes = (uint32_t)bytes;
    if (REAL(writev)(trace, out, count) != (ssize_t)bytes) abort();
}

static int is_zero(const char *bytes, size_t length) {
    return length && !bytes[0] && (length == 1 || !memcmp(bytes, bytes + 1, length - 1));
}

/* Counts a call down; true if it is to fail. */
static int is_due(volatile uint64_t *fail_at, volatile uint64_t *count) {
    (*count)++;
    if (!*fail_at || --*fail_at) return 0;
    control->fired++;
    return 1;
}

/* Whether there is no room for what a call needs. */
static int no_room(void) {
    control->rooms++;
    if (control->full_at && !--control->full_at) control->full = 1;
    if (!control->full) return 0;
    control->fired++;
    errno = ENOSPC;
    return 1;
}

static int needs_room(const struct stat *facts, off_t offset, size_t length) {
    return offset + (off_t)length > facts->st_size || (off_t)facts->st_blocks * 512 < facts->st_size;
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static int opened(void *call, int dir, const char *path, int flags, mode_t mode) {
    const char *name = below(path);
    if (!name) {
        int fd = call ? ((int (*)(const char *, int, ...))call)(path, flags, mode)
                      : REAL(openat64)(dir, path, flags, mode);
        /* A folder that is emptied is opened by its place in a tracked one. */
        track(fd, path[0] != '/' && is_tracked(dir));
        return fd;
    }
    pthread_mutex_lock(&order);
    struct stat facts;
    int was_there = !lstat(path, &facts);
    if ((flags & O_CREAT) && !was_there && no_room()) {
        pthread_mutex_unlock(&order);
        return -1;
    }
    int fd = call ? ((int (*)(const char *, int, ...))call)(path, flags, mode)
                  : REAL(openat64)(dir, path, flags, mode);
    if (fd >= 0) {
        track(fd, 1);
        uint64_t inode = inode_of(fd, &facts);
        if ((flags & O_CREAT) && !was_there) note(CREATE, inode, 0, 0, name, NULL, NULL, 0);
        else if (flags & O_TRUNC) note(TRUNCATE, inode, 0, 0, NULL, NULL, NULL, 0);
    }
    int kept = errno;
    pthread_mutex_unlock(&order);
    errno = kept;
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }
int open(const char *path, int flags, ...) { MODE(flags) return opened((void *)REAL(open), 0, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened((void *)REAL(open64), 0, path, flags, mode); }
int openat(int dir, const char *path, int flags, ...) { MODE(flags) return opened(NULL, dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { MODE(flags) return opened(NULL, dir, path, flags, mode); }

int close(int fd) {
    if (fd == trace && trace >= 0) return 0;
    track(fd, 0);
    return REAL(close)(fd);
}

#define DUPLICATES(name) \
    int name(int fd, int command, ...) { \
        va_list more; \
        va_start(more, command); \
        void *argument = va_arg(more, void *); \
        va_end(more); \
        int done = REAL(name)(fd, command, argument); \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) track(done, is_tracked(fd)); \
        return done; \
    }
DUPLICATES(fcntl)
DUPLICATES(fcntl64)

/* Runs a change of names in order; `expression` is 0 if it was done. */
#define IN_ORDER(expression, recorded) \
    pthread_mutex_lock(&order); \
    int done = (expression); \
    int kept = errno; \
    if (!done) { recorded; } \
    pthread_mutex_unlock(&order); \
    errno = kept; \
    return done;

int rename(const char *from, const char *to) {
    const char *a = below(from), *b = below(to);
    if (!a || !b) return REAL(rename)(from, to);
    IN_ORDER(REAL(rename)(from, to), note(RENAME, 0, 0, 0, a, b, NULL, 0))
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    const char *a = below(from), *b = below(to);
    if (!a || !b) return REAL(renameat)(from_dir, from, to_dir, to);
    IN_ORDER(REAL(renameat)(from_dir, from, to_dir, to), note(RENAME, 0, 0, 0, a, b, NULL, 0))
}

int unlink(const char *path) {
    const char *name = below(path);
    if (!name) return REAL(unlink)(path);
    IN_ORDER(REAL(unlink)(path), note(UNLINK, 0, 0, 0, name, NULL, NULL, 0))
}

int rmdir(const char *path) {
    const char *name = below(path);
    if (!name) return REAL(rmdir)(path);
    IN_ORDER(REAL(rmdir)(path), note(RMDIR, 0, 0, 0, name, NULL, NULL, 0))
}

int unlinkat(int dir, const char *path, int flags) {
    int is_dir = flags & AT_REMOVEDIR;
    const char *name = below(path);
    if (name) {
        IN_ORDER(REAL(unlinkat)(dir, path, flags), note(is_dir ? RMDIR : UNLINK, 0, 0, 0, name, NULL, NULL, 0))
    }
    if (!is_tracked(dir)) return REAL(unlinkat)(dir, path, flags);
    struct stat facts;
    uint64_t inode = inode_of(dir, &facts);
    IN_ORDER(REAL(unlinkat)(dir, path, flags), note(is_dir ? RMDIR_AT : UNLINK_AT, inode, 0, 0, path, NULL, NULL, 0))
}

int mkdir(const char *path, mode_t mode) {
    const char *name = below(path);
    if (!name) return REAL(mkdir)(path, mode);
    struct stat facts;
    IN_ORDER(!lstat(path, &facts) ? REAL(mkdir)(path, mode) : no_room() ? -1 : REAL(mkdir)(path, mode),
             lstat(path, &facts); note(MKDIR, facts.st_ino, 0, 0, name, NULL, NULL, 0))
}

int link(const char *from, const char *to) {
    const char *a = below(from), *b = below(to);
    if (!a || !b) return REAL(link)(from, to);
    IN_ORDER(no_room() ? -1 : REAL(link)(from, to), note(LINK, 0, 0, 0, a, b, NULL, 0))
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    const char *a = below(from), *b = below(to);
    if (!a || !b) return REAL(linkat)(from_dir, from, to_dir, to, flags);
    IN_ORDER(no_room() ? -1 : REAL(linkat)(from_dir, from, to_dir, to, flags), note(LINK, 0, 0, 0, a, b, NULL, 0))
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

/* A write of some parts at an offset; -1 for where the descriptor stands. */
static ssize_t written(int fd, const struct iovec *data, int parts, off_t at) {
    struct stat facts;
    size_t length = 0;
    for (int i = 0; i < parts; i++) length += data[i].iov_len;
    pthread_mutex_lock(&order);
    uint64_t inode = inode_of(fd, &facts);
    if (!S_ISREG(facts.st_mode)) {
        pthread_mutex_unlock(&order);
        return REAL(writev)(fd, data, parts);
    }
    off_t offset = at;
    if (at < 0) offset = (REAL(fcntl)(fd, F_GETFL) & O_APPEND) ? facts.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t done = -1;
    if (is_due(&control->write_fail_at, &control->writes)) errno = (int)control->write_errno;
    else if (needs_room(&facts, offset, length) && no_room()) done = -1;
    else if (at >= 0) done = REAL(pwrite64)(fd, data[0].iov_base, length, at);
    else done = REAL(writev)(fd, data, parts);
    if (done > 0) {
        if (parts == 1 && is_zero(data[0].iov_base, (size_t)done)) note(ZEROS, inode, offset, done, NULL, NULL, NULL, 0);
        else note(WRITE, inode, offset, done, NULL, NULL, data, parts);
    }
    int kept = errno;
    pthread_mutex_unlock(&order);
    errno = kept;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (!is_tracked(fd)) {
        if (control != &nothing) {
            struct stat facts;
            if (!fstat(fd, &facts) && S_ISSOCK(facts.st_mode)) __sync_fetch_and_add(&control->sends, 1);
        }
        return REAL(write)(fd, bytes, length);
    }
    struct iovec one = {(void *)bytes, length};
    return written(fd, &one, 1, -1);
}

ssize_t writev(int fd, const struct iovec *data, int parts) {
    if (!is_tracked(fd)) {
        if (control != &nothing) {
            struct stat facts;
            if (!fstat(fd, &facts) && S_ISSOCK(facts.st_mode)) __sync_fetch_and_add(&control->sends, 1);
        }
        return REAL(writev)(fd, data, parts);
    }
    return written(fd, data, parts, -1);
}

static ssize_t placed(int fd, const void *bytes, size_t length, off_t offset) {
    if (!is_tracked(fd)) return REAL(pwrite64)(fd, bytes, length, offset);
    struct iovec one = {(void *)bytes, length};
    return written(fd, &one, 1, offset);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return placed(fd, bytes, length, offset); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) { return placed(fd, bytes, length, offset); }

static int cut(int fd, off_t length) {
    if (!is_tracked(fd)) return REAL(ftruncate64)(fd, length);
    struct stat facts;
    uint64_t inode = inode_of(fd, &facts);
    if (is_due(&control->write_fail_at, &control->writes)) {
        errno = (int)control->write_errno;
        return -1;
    }
    IN_ORDER(REAL(ftruncate64)(fd, length), note(TRUNCATE, inode, 0, (uint64_t)length, NULL, NULL, NULL, 0))
}
int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off_t length) { return cut(fd, length); }

static int synced(int fd, int (*call)(int)) {
    if (!is_tracked(fd)) return call(fd);
    struct stat facts;
    uint64_t inode = inode_of(fd, &facts);
    pthread_mutex_lock(&order);
    uint64_t number = ++sync_number;
    int fails = is_due(&control->sync_fail_at, &control->syncs);
    int skips = control->no_sync != 0;
    if (!fails && !skips) note(SYNC_BEGIN, inode, number, 0, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&order);
    if (skips) return 0;
    if (fails) {
        errno = (int)control->sync_errno;
        return -1;
    }
    int done = call(fd);
    if (done) return done;
    pthread_mutex_lock(&order);
    note(SYNC_END, inode, number, 0, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&order);
    return 0;
}
int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

/* Copies inside the kernel would not be seen: whoever asks falls back to reading and writing. */
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t length, unsigned flags) {
    if (is_tracked(out)) {
        errno = ENOSYS;
        return -1;
    }
    return REAL(copy_file_range)(in, in_at, out, out_at, length, flags);
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t length) {
    if (is_tracked(out)) {
        errno = ENOSYS;
        return -1;
    }
    ssize_t (*call)(int, int, off64_t *, size_t) = (ssize_t(*)(int, int, off64_t *, size_t))real("sendfile64", &real_sendfile64);
    return call(out, in, at, length);
}

/* --- space and sockets -------------------------------------------------------------------------------------------- */

/* Low is three quarters of the server's low water: too little for new data, enough for what makes room. */
static uint64_t little(uint64_t blocks, uint64_t block_bytes) {
    uint64_t total = blocks * block_bytes, low_water = total / 16;
    if (low_water < 256ull << 20) low_water = 256ull << 20;
    if (low_water > 2048ull << 20) low_water = 2048ull << 20;
    if (low_water > total / 4) low_water = total / 4;
    return control->full ? 0 : low_water / 4 * 3 / block_bytes;
}

int statvfs(const char *path, struct statvfs *facts) {
    int done = REAL(statvfs)(path, facts);
    if (!done && (control->full || control->low) && below(path)) facts->f_bavail = facts->f_bfree = little(facts->f_blocks, facts->f_frsize);
    return done;
}
int statvfs64(const char *path, struct statvfs64 *facts) {
    int done = REAL(statvfs64)(path, facts);
    if (!done && (control->full || control->low) && below(path)) facts->f_bavail = facts->f_bfree = little(facts->f_blocks, facts->f_frsize);
    return done;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    __sync_fetch_and_add(&control->sends, 1);
    return REAL(send)(fd, bytes, length, flags);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    __sync_fetch_and_add(&control->sends, 1);
    return REAL(sendmsg)(fd, message, flags);
}
ssize_t recv(int fd, void *bytes, size_t length, int flags) {
    __sync_fetch_and_add(&control->receives, 1);
    return REAL(recv)(fd, bytes, length, flags);
}
