/* A wall clock that a test can step, for one process: LD_PRELOAD it, with STEPPED_CLOCK naming a file that holds the
 * microseconds by which the clock is off, as a 64-bit integer. The file is mapped, so that a change takes effect
 * at once; SIGRTMIN then does what the kernel does when its clock is set: timers on the wall clock move with it, and
 * those with TFD_TIMER_CANCEL_ON_SET are cancelled. Monotonic clocks are left alone, as by a real step.
 *
 * STEPPED_CLOCK_NO_TIMERFD=1 simulates a system without timerfd. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MOST_FDS 1024
#define SECOND 1000000000LL

static _Atomic int64_t none;
static _Atomic int64_t *off_us = &none;

/* A timer on the wall clock: its expiry by the stepped clock, in ns; 0: not armed. */
static struct {
    _Atomic int is_wall, is_cancelled, cancels_on_set;
    _Atomic int64_t at;
} timers[MOST_FDS];

static int64_t off(void) { return atomic_load(off_us) * 1000; }

static struct timespec spec_of(int64_t ns) {
    return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

/* Arm the kernel's timer. A system call, as a signal handler may make it; an instant before 1970 expires at once. */
static int arm(int fd, int64_t at) {
    int64_t real = at - off();
    struct itimerspec spec = {.it_value = spec_of(real > 0 ? real : 1)};
    return syscall(SYS_timerfd_settime, fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void on_step(int number) {
    int before = errno;
    (void)number;
    for (int fd = 0; fd < MOST_FDS; fd++) {
        int64_t at = atomic_load(&timers[fd].at);
        if (!at) continue;
        if (atomic_load(&timers[fd].cancels_on_set)) {
            atomic_store(&timers[fd].is_cancelled, 1);
            arm(fd, off() + 1); /* long past: it becomes readable at once, and read() returns ECANCELED */
        } else {
            arm(fd, at);
        }
    }
    errno = before;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("STEPPED_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof *off_us, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    off_us = mapped;
    struct sigaction action = {.sa_handler = on_step, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
}

int clock_gettime(clockid_t id, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, found);
    if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        *found = spec_of(found->tv_sec * SECOND + found->tv_nsec + off());
    return code;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *found = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}

int timerfd_create(int id, int flags) {
    if (getenv("STEPPED_CLOCK_NO_TIMERFD")) {
        errno = ENOSYS;
        return -1;
    }
    int fd = syscall(SYS_timerfd_create, id, flags);
    if (fd >= 0 && fd < MOST_FDS) {
        atomic_store(&timers[fd].at, 0);
        atomic_store(&timers[fd].is_cancelled, 0);
        atomic_store(&timers[fd].is_wall, id == CLOCK_REALTIME);
    }
    return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *spec, struct itimerspec *old) {
    int64_t at = spec->it_value.tv_sec * SECOND + spec->it_value.tv_nsec;
    if (fd >= MOST_FDS || !atomic_load(&timers[fd].is_wall) || !(flags & TFD_TIMER_ABSTIME) || !at)
        return syscall(SYS_timerfd_settime, fd, flags, spec, old);
    atomic_store(&timers[fd].cancels_on_set, (flags & TFD_TIMER_CANCEL_ON_SET) != 0);
    atomic_store(&timers[fd].at, at);
    int64_t off_before;
    do {
        off_before = off();
        if (arm(fd, at)) return -1;
    } while (off() != off_before); /* stepped in between: armed by the old clock */
    if (!atomic_exchange(&timers[fd].is_cancelled, 0)) return 0;
    arm(fd, at);
    errno = ECANCELED; /* the step was not read yet; the timer is armed, as by the kernel */
    return -1;
}

ssize_t read(int fd, void *buffer, size_t size) {
    ssize_t got = syscall(SYS_read, fd, buffer, size);
    if (got <= 0 || fd < 0 || fd >= MOST_FDS || !atomic_load(&timers[fd].is_wall)) return got;
    if (!atomic_exchange(&timers[fd].is_cancelled, 0)) return got;
    errno = ECANCELED;
    return -1;
}

int close(int fd) {
    if (fd >= 0 && fd < MOST_FDS) {
        atomic_store(&timers[fd].at, 0);
        atomic_store(&timers[fd].is_wall, 0);
    }
    return syscall(SYS_close, fd);
}
