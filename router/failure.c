/* The table of remedies. */
#include "router/failure.h"

/* A failure without an origin comes from gRPC or from a worker that states none. ENOMEM with the origin
 * `worker` means that the worker ran out of memory, which another may have; otherwise something is too large
 * for any worker. An unknown ticket (ENOTFOUND) and an expired lease (ECANCELLED) happen to healthy workers. */
fv_remedy fv_failure_remedy(fv_status st, fv_origin origin) {
    /* clang-format off */
    static const fv_remedy table[FV_N_STATUS][FV_N_ORIGIN] = {
        /* status           unstated    caller   checkpoint  hand-off    worker */
        [FV_EINVAL] =       {FV_TELL,    FV_TELL, FV_TELL,    FV_TELL,    FV_TELL},
        [FV_EUNSUPPORTED] = {FV_TELL,    FV_TELL, FV_TELL,    FV_TELL,    FV_TELL},
        [FV_EFATAL] =       {FV_TELL,    FV_TELL, FV_TELL,    FV_TELL,    FV_TELL},
        [FV_ENOMEM] =       {FV_TELL,    FV_TELL, FV_TELL,    FV_TELL,    FV_REPLAY},
        [FV_EBUSY] =        {FV_WAIT,    FV_WAIT, FV_WAIT,    FV_WAIT,    FV_WAIT},
        [FV_ENOTFOUND] =    {FV_REPLAY,  FV_TELL, FV_TELL,    FV_REPLAY,  FV_REPLAY},
        [FV_ECANCELLED] =   {FV_REPLAY,  FV_TELL, FV_REPLAY,  FV_REPLAY,  FV_REPLAY},
        [FV_EDATA] =        {FV_COUNTED, FV_TELL, FV_TELL,    FV_COUNTED, FV_COUNTED},
        [FV_EDEADLINE] =    {FV_COUNTED, FV_TELL, FV_COUNTED, FV_COUNTED, FV_COUNTED},
        [FV_EIO] =          {FV_COUNTED, FV_TELL, FV_COUNTED, FV_COUNTED, FV_COUNTED},
        [FV_EDEVICE] =      {FV_COUNTED, FV_TELL, FV_COUNTED, FV_COUNTED, FV_COUNTED},
        [FV_EAUTH] =        {FV_COUNTED, FV_TELL, FV_COUNTED, FV_COUNTED, FV_COUNTED},
        [FV_EDENIED] =      {FV_COUNTED, FV_TELL, FV_COUNTED, FV_COUNTED, FV_COUNTED},
    };
    /* clang-format on */
    return table[st][origin];
}
