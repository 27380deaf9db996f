/* How much of the machine's time the group of processes (cgroup, of a
 * container) gets that this one is in. */
#ifndef LP_BASE_QUOTA_H
#define LP_BASE_QUOTA_H

/* Processors, 1.5 for instance: the least of the group and those around it; 0:
 * as many as there are. `groups`: /proc/self/cgroup; `root`: where their files
 * are, /sys/fs/cgroup. */
double lp_quota(const char *groups, const char *root);

#endif
