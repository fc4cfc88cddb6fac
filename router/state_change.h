#ifndef FOVEA_ROUTER_STATE_CHANGE_H
#define FOVEA_ROUTER_STATE_CHANGE_H

/* STATE CHANGES that are allowed, as a table: what sets a state asserts that the change is a row. Tests walk the
 * tables and compare them with the pages that show them. */
#include <stdbool.h>
#include <string.h>

typedef struct fv_state_change {
    int from, to;   /* of the enumeration of the table's states */
    const char *by; /* the function that makes the change */
} fv_state_change;

/* Whether the change is a row of the table. */
static inline bool fv_state_change_is_in(const fv_state_change *table, int n, int from, int to,
                                         const char *by) {
    for (int i = 0; i < n; i++)
        if (table[i].from == from && table[i].to == to && strcmp(table[i].by, by) == 0) return true;
    return false;
}

#endif
