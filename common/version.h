#ifndef FOVEA_COMMON_VERSION_H
#define FOVEA_COMMON_VERSION_H

/* Of this build, as CMakeLists.txt has it: "0.1.0". */
const char *fv_version(void);

#endif
