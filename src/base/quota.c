/* A line of `groups` is ID:CONTROLLERS:PATH. Version 2 has one, without
 * controllers, and cpu.max in each folder, "QUOTA PERIOD" in microseconds or
 * "max PERIOD"; version 1 a line and a tree for the controller cpu, and
 * cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us. Within a container the
 * path may be that of outside, of which there is nothing but the last folder,
 * at the root: so all folders above count, be those below there or not.
 *
 * Source: Linux, admin-guide/cgroup-v2 and scheduler/sched-bwc. */
#include "src/base/quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The numbers that a file begins with; how many, up to two. */
static int numbers(const char *folder, const char *name, double *a, double *b)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = n > 0 && n < PATH_MAX ? fopen(path, "re") : NULL;
    n = f ? fscanf(f, "%lf %lf", a, b) : 0;
    if (f)
        fclose(f);
    return n;
}

static double of_folder(const char *folder, bool first)
{
    double quota = 0, period = 0, more;
    bool there =
        first ? numbers(folder, "cpu.cfs_quota_us", &quota, &more) >= 1 &&
                    numbers(folder, "cpu.cfs_period_us", &period, &more) >= 1
              : numbers(folder, "cpu.max", &quota, &period) == 2;
    return there && quota > 0 && period > 0 ? quota / period : 0;
}

/* Of root/tree/path and the folders above it down to root/tree. */
static double least(const char *root, const char *tree, const char *path,
                    bool first)
{
    char folder[PATH_MAX];
    int top = snprintf(folder, sizeof folder, "%s%s", root, tree);
    int n = snprintf(folder, sizeof folder, "%s%s%s", root, tree, path);
    if (top < 0 || n < top || n >= PATH_MAX)
        return 0;
    double best = 0;
    for (char *end = folder + n; end; end = strrchr(folder + top, '/')) {
        *end = '\0';
        double q = of_folder(folder, first);
        if (q > 0 && (best <= 0 || q < best))
            best = q;
    }
    return best;
}

static bool has_cpu(const char *controllers, size_t n)
{
    while (n > 0) {
        size_t word = strcspn(controllers, ",:");
        if (word == 3 && strncmp(controllers, "cpu", 3) == 0)
            return true;
        word = word < n ? word + 1 : n;
        controllers += word;
        n -= word;
    }
    return false;
}

static double of_line(char *line, const char *root)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return 0;
    controllers++;
    size_t n = (size_t)(path - controllers);
    if (n == 0)
        return least(root, "", path + 1, false);
    return has_cpu(controllers, n) ? least(root, "/cpu", path + 1, true) : 0;
}

double lp_quota(const char *groups, const char *root)
{
    FILE *f = fopen(groups, "re");
    if (!f)
        return 0;
    double best = 0;
    char line[PATH_MAX];
    while (fgets(line, sizeof line, f)) {
        double q = of_line(line, root);
        if (q > 0 && (best <= 0 || q < best))
            best = q;
    }
    fclose(f);
    return best;
}
