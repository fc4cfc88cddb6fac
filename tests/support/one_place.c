/* In `touch`, the list's last node is read as l->ends.prev and written as x->next->prev, where x->next is &l->ends. */
#include "tests/support/one_place.h"

#include <stddef.h>

void one_list_open(one_list *l) {
    l->n = 0;
    l->ends = (one_node){&l->ends, &l->ends, NULL};
}

static void append(one_list *l, one_node *x) {
    x->prev = l->ends.prev;
    x->next = &l->ends;
    x->prev->next = x->next->prev = x;
}

void one_list_append(one_list *l, one_node *x) {
    append(l, x);
    l->n++;
}

void one_list_touch(one_list *l, one_node *x) {
    for (; x; x = x->base) {
        x->prev->next = x->next;
        x->next->prev = x->prev;
        append(l, x);
    }
}
