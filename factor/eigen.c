/* Eigenvectors of a symmetric matrix. The matrix of accumulated rotations is kept transposed, so
 * that a rotation mixes two rows that are contiguous, and a reflection is applied to rows. */
#include "factor/eigen.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "factor/doubles.h"

enum { MAX_SWEEPS = 60, COLUMNS = 8 * VECTOR };

/* ---- rotations --------------------------------------------------------------------------- */

/* Rotates a row y and the row x before it: y = s x + c y, x = c x - s y. */
typedef struct rotation {
    double c, s;
} rotation;

/* Rotates n_vector vectors of columns; keeps in registers the row that two successive rotations share. */
VECTORS_PART void rotate_vectors(const rotation *r, size_t first, size_t end, double *z, size_t n,
                                 const int n_vector) {
    vector y[COLUMNS / VECTOR];
    for (int v = 0; v < n_vector; v++) y[v] = VECTOR_AT(z + end * n + v * VECTOR);
    for (size_t i = end; i-- > first;) {
        const double c = r[i].c, s = r[i].s;
        double *row = z + i * n;
        for (int v = 0; v < n_vector; v++) {
            vector x = VECTOR_AT(row + v * VECTOR);
            VECTOR_AT(row + n + v * VECTOR) = s * x + c * y[v];
            y[v] = c * x - s * y[v];
        }
    }
    for (int v = 0; v < n_vector; v++) VECTOR_AT(z + first * n + v * VECTOR) = y[v];
}

/* Applies rotation i to rows i and i + 1 of z [.., n], from i = end - 1 down to `first`. */
VECTORS static void rotate_rows(const rotation *r, size_t first, size_t end, double *z, size_t n) {
    size_t k = 0;
    if (first == end) return;
    for (; k + COLUMNS <= n; k += COLUMNS)
        rotate_vectors(r, first, end, z + k, n, COLUMNS / VECTOR);
    for (; k + VECTOR <= n; k += VECTOR) rotate_vectors(r, first, end, z + k, n, 1);
    for (; k < n; k++) {
        double y = z[end * n + k];
        for (size_t i = end; i-- > first;) {
            double x = z[i * n + k];
            z[(i + 1) * n + k] = r[i].s * x + r[i].c * y;
            y = r[i].c * x - r[i].s * y;
        }
        z[first * n + k] = y;
    }
}

/* ---- steps ------------------------------------------------------------------------------- */

/* Householder: a becomes Q^T with Q^T A Q tridiagonal; d the diagonal, e[1..] the off-diagonal.
 * Column i of the lower triangle is zeroed by reflection H = I - u u^T / h, i from the
 * bottom up; the reflections are multiplied afterwards. u_i is kept in row i of a, h_i in d[i]. */
VECTORS static void tridiagonal(double *a, size_t n, double *d, double *e) {
    for (size_t i = n; i-- > 1;) {
        double *u = a + i * n, scale = 0, h = 0;
        for (size_t k = 0; k < i; k++) scale += fabs(u[k]);
        if (i == 1 || scale == 0) {
            e[i] = u[i - 1];
            d[i] = 0;
            continue;
        }
        for (size_t k = 0; k < i; k++) {
            u[k] /= scale;
            h += u[k] * u[k];
        }
        double f = u[i - 1], g = f > 0 ? -sqrt(h) : sqrt(h), dot = 0;
        e[i] = scale * g;
        h -= f * g;
        u[i - 1] = f - g;
        /* p = A u / h in e[0..i), from the lower triangle: row k is also column k */
        for (size_t k = 0; k < i; k++) e[k] = 0;
        for (size_t k = 0; k < i; k++) {
            const double *row = a + k * n;
            e[k] += row[k] * u[k] + dot_add(row, u, k, u[k], e);
        }
        for (size_t k = 0; k < i; k++) {
            e[k] /= h;
            dot += e[k] * u[k];
        }
        /* q = p - (u p / 2h) u;  A -= q u^T + u q^T */
        for (size_t k = 0; k < i; k++) e[k] -= dot / (h + h) * u[k];
        for (size_t k = 0; k < i; k++) subtract_both(a + k * n, u[k], e, e[k], u, k + 1);
        d[i] = h;
    }
    e[0] = d[0] = 0;
}

/* Replaces a by the product of the reflections, transposed, and d by the diagonal. The block [0, i) holds
 * the product of the reflections before i; reflection i turns its rows x into x - (x u / h) u. */
VECTORS static void accumulate(double *a, size_t n, double *d) {
    for (size_t i = 0; i < n; i++) {
        double *u = a + i * n;
        if (d[i] != 0)
            for (size_t j = 0; j < i; j++) {
                double *row = a + j * n;
                subtract(row, dot_add(row, u, i, 0, NULL) / d[i], u, i);
            }
        d[i] = u[i];
        for (size_t k = 0; k < i; k++) u[k] = a[k * n + i] = 0;
        u[i] = 1;
    }
}

/* QL with implicit shifts on the tridiagonal matrix (d, e); rotation i mixes rows i and i + 1 of z, all
 * rotations of a sweep at once. */
static bool diagonal(double *d, double *e, double *z, size_t n, rotation *rotations) {
    double size = 0;
    for (size_t i = 0; i < n; i++) size = fmax(size, fabs(d[i]) + fabs(e[i]));
    for (size_t i = 1; i < n; i++) e[i - 1] = e[i];
    e[n - 1] = 0;
    for (size_t l = 0; l < n; l++)
        for (int sweep = 0;; sweep++) {
            size_t m = l;
            while (m + 1 < n && fabs(e[m]) > 0x1p-52 * (fabs(d[m]) + fabs(d[m + 1])) &&
                   fabs(e[m]) > 0x1p-56 * size)
                m++;
            if (m == l) break;
            if (sweep == MAX_SWEEPS) return false;
            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = sqrt(g * g + 1), s = 1, c = 1, p = 0;
            g = d[m] - d[l] + e[l] / (g + copysign(r, g));
            size_t i = m, first = m;
            while (i-- > l) {
                double f = s * e[i], b = c * e[i];
                r = sqrt(f * f + g * g);
                e[i + 1] = r;
                if (r == 0) { /* the matrix splits here: start again */
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                rotations[i] = (rotation){c, s};
                first = i;
            }
            rotate_rows(rotations, first, m, z, n);
            if (r == 0 && i + 1 > l) continue;
            d[l] -= p;
            e[l] = g;
            e[m] = 0;
        }
    return true;
}

static void sort_rows(double *z, size_t n, double *w) {
    for (size_t i = 0; i < n; i++) {
        size_t top = i;
        for (size_t j = i + 1; j < n; j++)
            if (w[j] > w[top]) top = j;
        if (top == i) continue;
        double t = w[i];
        w[i] = w[top];
        w[top] = t;
        for (size_t k = 0; k < n; k++) {
            t = z[i * n + k];
            z[i * n + k] = z[top * n + k];
            z[top * n + k] = t;
        }
    }
}

fv_status fv_eigen_symmetric(double *a, int32_t n, double *w, double *scratch) {
    size_t N = (size_t)n;
    if (n == 0) return FV_OK;
    tridiagonal(a, N, w, scratch);
    accumulate(a, N, w);
    if (!diagonal(w, scratch, a, N, (rotation *)(scratch + N)))
        return FV_FAIL(FV_EDATA, "eigenvalues of a %d x %d matrix do not converge", n, n);
    sort_rows(a, N, w);
    return FV_OK;
}
