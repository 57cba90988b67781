// A program whose parallel loops are kernels has one thread besides them, and so has one that zig compiles.
#pragma once

#ifdef _OPENMP
#include_next <omp.h>
#else

#ifdef __cplusplus
extern "C" {
#endif
double mptune_seconds(void);
#ifdef __cplusplus
}
#endif

typedef struct {
    int unused;
} omp_lock_t, omp_nest_lock_t;
typedef enum { omp_sched_static = 1, omp_sched_dynamic, omp_sched_guided, omp_sched_auto } omp_sched_t;

static inline double omp_get_wtime(void) { return mptune_seconds(); }
static inline double omp_get_wtick(void) { return 1e-9; }
static inline int omp_get_num_threads(void) { return 1; }
static inline int omp_get_max_threads(void) { return 1; }
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_num_procs(void) { return 1; }
static inline int omp_get_thread_limit(void) { return 1; }
static inline int omp_in_parallel(void) { return 0; }
static inline int omp_get_dynamic(void) { return 0; }
static inline int omp_get_nested(void) { return 0; }
static inline int omp_get_num_devices(void) { return 0; }
static inline int omp_get_default_device(void) { return 0; }
static inline int omp_get_initial_device(void) { return 0; }
static inline int omp_is_initial_device(void) { return 1; }
static inline int omp_get_num_teams(void) { return 1; }
static inline int omp_get_team_num(void) { return 0; }
static inline void omp_set_num_threads(int count) { (void)count; }
static inline void omp_set_dynamic(int on) { (void)on; }
static inline void omp_set_nested(int on) { (void)on; }
static inline void omp_set_schedule(omp_sched_t kind, int chunk) { (void)kind, (void)chunk; }
static inline void omp_set_default_device(int device) { (void)device; }
static inline void omp_init_lock(omp_lock_t* lock) { (void)lock; }
static inline void omp_destroy_lock(omp_lock_t* lock) { (void)lock; }
static inline void omp_set_lock(omp_lock_t* lock) { (void)lock; }
static inline void omp_unset_lock(omp_lock_t* lock) { (void)lock; }

#endif
