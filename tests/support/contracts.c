#include "tests/support/contracts.h"

#include <stdbool.h>
#include <stdlib.h>

#include "fleet.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "handoff.pb-c.h"
#include "inference.pb-c.h"

enum { MESSAGES_MAX = 256 };

static const ProtobufCMessageDescriptor *list[MESSAGES_MAX];
static int32_t n_list;
static bool complete;

static void add(const ProtobufCMessageDescriptor *d) {
    for (int32_t i = 0; i < n_list; i++)
        if (list[i] == d) return;
    if (n_list == MESSAGES_MAX) abort();
    list[n_list++] = d;
    for (unsigned i = 0; i < d->n_fields; i++)
        if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE) add(d->fields[i].descriptor);
}

const ProtobufCMessageDescriptor *const *contract_messages(int32_t *n) {
    static const ProtobufCServiceDescriptor *const services[] = {
        &fovea__inference__v1__inference__descriptor,
        &fovea__handoff__v1__prefill__descriptor,
        &fovea__handoff__v1__handoff__descriptor,
        &fovea__handoff__v1__decode__descriptor,
        &fovea__fleet__v1__fleet__descriptor,
        &grpc__health__v1__health__descriptor,
        &grpc__reflection__v1__server_reflection__descriptor,
        &grpc__reflection__v1alpha__server_reflection__descriptor,
    };
    for (size_t i = 0; i < sizeof services / sizeof *services && !complete; i++)
        for (unsigned m = 0; m < services[i]->n_methods; m++) {
            add(services[i]->methods[m].input);
            add(services[i]->methods[m].output);
        }
    complete = true;
    *n = n_list;
    return list;
}
