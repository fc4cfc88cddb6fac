#ifndef FOVEA_TESTS_SUPPORT_ONE_PLACE_H
#define FOVEA_TESTS_SUPPORT_ONE_PLACE_H

/* A loop of the kind that gcc 12 compiles wrongly when it assumes strict aliasing: a list whose ends are part of a
 * larger struct. The tests are compiled without optimisation, and this file as the layers are. */
typedef struct one_node {
    struct one_node *prev, *next, *base;
} one_node;

typedef struct one_list {
    long n;
    one_node ends; /* the last node's next and the first one's prev */
} one_list;

void one_list_open(one_list *l);
void one_list_append(one_list *l, one_node *x);

/* Makes a node and all that it is based on the list's last ones. */
void one_list_touch(one_list *l, one_node *x);

#endif
