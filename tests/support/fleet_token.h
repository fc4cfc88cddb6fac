#ifndef FOVEA_TESTS_SUPPORT_FLEET_TOKEN_H
#define FOVEA_TESTS_SUPPORT_FLEET_TOKEN_H

/* A file with a fleet's secret for tests, where it need not be secret; fake workers have the same
 * (tests/support/fake_worker.h). */
#define FLEET_TOKEN FOVEA_TEST_DATA "/support/fleet.token"
#define FLEET_TOKEN_FILE " --fleet-token-file " FLEET_TOKEN " "

#endif
