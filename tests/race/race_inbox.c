/* The inbox under ThreadSanitizer: several threads post, one takes; nothing is lost, and each
 * sender's items arrive in order. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/inbox.h"

enum { SENDERS = 4, ITEMS = 20000 };

typedef struct letter {
    fv_inbox_item item; /* first */
    int sender, number;
} letter;

static fv_inbox box;
static letter letters[SENDERS][ITEMS];

static void *post_all(void *arg) {
    letter *mine = arg;
    for (int i = 0; i < ITEMS; i++)
        while (fv_inbox_post(&box, &mine[i].item) == FV_EBUSY) sched_yield();
    return NULL;
}

static void *close_at_end(void *arg) {
    pthread_t *senders = arg;
    for (int s = 0; s < SENDERS; s++) pthread_join(senders[s], NULL);
    fv_inbox_close(&box);
    return NULL;
}

static void run(size_t limit) {
    pthread_t senders[SENDERS], closer;
    int next[SENDERS] = {0};
    if (fv_inbox_init(&box, limit, NULL, NULL) != FV_OK) abort();
    for (int s = 0; s < SENDERS; s++) {
        for (int i = 0; i < ITEMS; i++) letters[s][i] = (letter){.sender = s, .number = i};
        pthread_create(&senders[s], NULL, post_all, letters[s]);
    }
    pthread_create(&closer, NULL, close_at_end, senders);
    for (bool closed = false; !closed;)
        for (fv_inbox_item *it = fv_inbox_wait(&box, -1, &closed); it; it = it->next) {
            letter *l = (letter *)it;
            if (l->number != next[l->sender]++) abort();
        }
    pthread_join(closer, NULL);
    for (int s = 0; s < SENDERS; s++)
        if (next[s] != ITEMS) abort();
    fv_inbox_fini(&box);
}

int main(void) {
    run(0);
    run(16);
    puts("ok");
    return 0;
}
