#include "auth/role.h"

const char *fv_role_name(fv_role role) {
    switch (role) {
    case FV_MEMBER_ROUTER: return "fovea-router";
    case FV_MEMBER_PREFILL: return "fovea-prefill";
    case FV_MEMBER_DECODE: return "fovea-decode";
    }
    return "";
}
