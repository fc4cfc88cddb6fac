/* Converts fv_status to gRPC's codes and back. Pure functions; any thread. */
#include "rpc/status.h"

grpc_status_code fv_rpc_code(fv_status st) { return (grpc_status_code)fv_status_grpc_code(st); }

/* gRPC's codes in their order, with our status for each. */
static const struct {
    const char *name;
    fv_status status;
} codes[] = {
    [GRPC_STATUS_OK] = {"OK", FV_OK},
    [GRPC_STATUS_CANCELLED] = {"CANCELLED", FV_ECANCELLED},
    [GRPC_STATUS_UNKNOWN] = {"UNKNOWN", FV_EIO},
    [GRPC_STATUS_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", FV_EINVAL},
    [GRPC_STATUS_DEADLINE_EXCEEDED] = {"DEADLINE_EXCEEDED", FV_EDEADLINE},
    [GRPC_STATUS_NOT_FOUND] = {"NOT_FOUND", FV_ENOTFOUND},
    [GRPC_STATUS_ALREADY_EXISTS] = {"ALREADY_EXISTS", FV_EINVAL},
    [GRPC_STATUS_PERMISSION_DENIED] = {"PERMISSION_DENIED", FV_EDENIED},
    [GRPC_STATUS_RESOURCE_EXHAUSTED] = {"RESOURCE_EXHAUSTED", FV_ENOMEM},
    [GRPC_STATUS_FAILED_PRECONDITION] = {"FAILED_PRECONDITION", FV_EFATAL},
    [GRPC_STATUS_ABORTED] = {"ABORTED", FV_ECANCELLED},
    [GRPC_STATUS_OUT_OF_RANGE] = {"OUT_OF_RANGE", FV_EINVAL},
    [GRPC_STATUS_UNIMPLEMENTED] = {"UNIMPLEMENTED", FV_EUNSUPPORTED},
    [GRPC_STATUS_INTERNAL] = {"INTERNAL", FV_EDEVICE},
    [GRPC_STATUS_UNAVAILABLE] = {"UNAVAILABLE", FV_EIO},
    [GRPC_STATUS_DATA_LOSS] = {"DATA_LOSS", FV_EDATA},
    [GRPC_STATUS_UNAUTHENTICATED] = {"UNAUTHENTICATED", FV_EAUTH},
};

static bool known(grpc_status_code code) { return (unsigned)code < sizeof codes / sizeof codes[0]; }

fv_status fv_rpc_status(grpc_status_code code, int64_t retry_ms) {
    if (code == GRPC_STATUS_RESOURCE_EXHAUSTED && retry_ms >= 0) return FV_EBUSY;
    return known(code) ? codes[code].status : FV_EIO;
}

const char *fv_rpc_code_name(grpc_status_code code) {
    return known(code) ? codes[code].name : "UNKNOWN";
}

fv_status fv_rpc_end_status(const fv_rpc_end *end, const char *who) {
    if (end->status == FV_OK) return FV_OK;
    FV_FAIL(end->status, "%s: %s", who, *end->text ? end->text : fv_rpc_code_name(end->code));
    return fv_fail_origin(end->status, end->origin);
}
