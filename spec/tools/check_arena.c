/* The arena plans (src/passes/host/arena.c, arena_pack.c) against their
 * definition: best fit by looking at every gap, byte by byte of 64; and that
 * nothing lies over anything that lives with it. Usage: check_arena
 * random|chain|wide|packed|largest. Prints what is wrong and exits with 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spec/tools/checks.h"
#include "src/passes/host/lower.h"

enum { UNIT = 64, MOST = 400, PLACES = 20000 };

static int wrong;

static void complain(const char *what, size_t i, uint64_t got, uint64_t want)
{
    if (++wrong <= 10)
        printf("%s of buffer %zu: %llu, not %llu\n", what, i,
               (unsigned long long)got, (unsigned long long)want);
}

static uint32_t draw(uint32_t below)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* Who holds each unit of the arena: instruction after which it is free. */
static uint32_t until[PLACES];
static size_t end;

static size_t gap_length(size_t at, uint32_t now)
{
    size_t n = 0;
    while (at + n < end && until[at + n] <= now)
        n++;
    return n;
}

/* The smallest gap that holds n units, the lowest of equal ones; else the gap
 * at the end, else the end. */
static size_t place(size_t n, uint32_t now)
{
    size_t best = end, best_length = SIZE_MAX;
    for (size_t at = 0; at < end;) {
        size_t length = gap_length(at, now);
        if (length >= n && length < best_length) {
            best = at;
            best_length = length;
        }
        if (length && at + length == end && best_length == SIZE_MAX)
            best = at;
        at += length ? length : 1;
    }
    return best;
}

static void compare(LpSpan *span, size_t n)
{
    LpErr e = {0};
    uint64_t total = 0;
    LpSpan in[MOST];
    memcpy(in, span, n * sizeof *in);
    memset(until, 0, sizeof until);
    end = 0;
    if (lp_arena_plan(span, n, &total, &e) != LP_OK) {
        complain("failure", 0, 0, 0);
        return;
    }
    for (size_t i = 0; i < n; i++) { /* in the order of their first use */
        size_t units = (size_t)((in[i].bytes + UNIT - 1) / UNIT);
        size_t at = units ? place(units, in[i].first) : 0;
        if (span[i].offset != at * UNIT)
            complain("place", i, span[i].offset, at * UNIT);
        for (size_t k = at; k < at + units; k++)
            until[k] = in[i].last + 1;
        if (at + units > end)
            end = at + units;
    }
    if (total != end * UNIT)
        complain("arena", n, total, end * UNIT);
}

static void check_random(void)
{
    LpSpan span[MOST];
    for (int round = 0; round < 200; round++) {
        size_t n = 1 + draw(MOST);
        uint32_t life = 1 + draw(1 + (uint32_t)n), large = 1 + draw(12 * UNIT);
        uint32_t pace = 1 + draw(4);
        for (size_t i = 0; i < n; i++) {
            uint32_t first = (uint32_t)i / pace;
            span[i] = (LpSpan){draw(large), first, first + draw(life), 0};
        }
        compare(span, n);
    }
}

/* Each buffer dies when the next but one is made: two places. */
static void check_chain(void)
{
    enum { N = 200000 };
    LpErr e = {0};
    uint64_t total;
    LpSpan *span = calloc(N, sizeof *span);
    for (uint32_t i = 0; i < N; i++)
        span[i] = (LpSpan){1000, i, i + 1, 0};
    if (lp_arena_plan(span, N, &total, &e) != LP_OK || total != 2048)
        complain("arena", N, total, 2048);
    free(span);
}

/* All live at once and die in an order that leaves every other one; what comes
 * then fits into the holes. */
static void check_wide(void)
{
    enum { N = 100000 };
    LpErr e = {0};
    uint64_t total;
    LpSpan *span = calloc(2 * N, sizeof *span);
    for (uint32_t i = 0; i < N; i++) {
        span[i] = (LpSpan){64, i, N + i % 2 * N, 0};
        span[N + i] = (LpSpan){64, N + 1 + i / 2, 3 * N, 0};
    }
    if (lp_arena_plan(span, N + N / 2, &total, &e) != LP_OK || total != 64 * N)
        complain("arena", N, total, 64 * N);
    free(span);
}

static uint64_t in_use(const LpSpan *span, size_t n, uint32_t now)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (span[i].first <= now && now <= span[i].last)
            bytes += span[i].bytes;
    return bytes;
}

static void check_apart(const LpSpan *span, size_t n, uint64_t total)
{
    uint64_t end_of_all = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t end_of = span[i].offset + span[i].bytes;
        if (span[i].bytes && end_of > end_of_all)
            end_of_all = end_of;
        if (span[i].offset % UNIT || in_use(span, n, span[i].first) > total)
            complain("arena", i, total, in_use(span, n, span[i].first));
        for (size_t k = 0; k < i; k++)
            if (span[k].first <= span[i].last &&
                span[i].first <= span[k].last && span[k].offset < end_of &&
                span[i].offset < span[k].offset + span[k].bytes)
                complain("overlap", i, span[i].offset, span[k].offset);
    }
    if (total != end_of_all)
        complain("end", n, total, end_of_all);
}

static void check_packed(void)
{
    LpSpan span[MOST];
    for (int round = 0; round < 100; round++) {
        size_t n = 1 + draw(MOST);
        uint32_t life = 1 + draw(1 + (uint32_t)n), large = 1 + draw(12 * UNIT);
        LpErr e = {0};
        uint64_t total = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t first = draw(MOST);
            span[i] = (LpSpan){draw(large), first, first + draw(life), 0};
        }
        if (lp_arena_pack(span, n, &total, &e) != LP_OK)
            complain("failure", 0, 0, 0);
        check_apart(span, n, total);
    }
}

/* A small buffer between two large ones that do not live together; in the gap
 * below it there is room for the next small one. */
static void check_largest(void)
{
    LpSpan span[4] = {{100 * UNIT, 0, 1, 0},
                      {UNIT, 1, 9, 0},
                      {200 * UNIT, 2, 9, 0},
                      {2 * UNIT, 0, 1, 0}};
    static const uint64_t want[4] = {0, 200, 0, 100};
    LpErr e = {0};
    uint64_t total = 0;
    if (lp_arena_pack(span, 4, &total, &e) != LP_OK || total != 201 * UNIT)
        complain("arena", 4, total, 201 * UNIT);
    for (size_t i = 0; i < 4; i++)
        if (span[i].offset != want[i] * UNIT)
            complain("place", i, span[i].offset, want[i] * UNIT);
}

int main(int argc, char **argv)
{
    static const LpCheck checks[] = {
        {"random", check_random},   {"chain", check_chain},
        {"wide", check_wide},       {"packed", check_packed},
        {"largest", check_largest},
    };
    return lp_checks_run(argc, argv, checks, sizeof checks / sizeof *checks,
                         &wrong);
}
