/* SPDX-License-Identifier: Apache-2.0 */
/* matrix_cases.h - contractions of integers, of floats of 8 bits, by tensor maps and by warpgroups in turns, among the
 * kernels that tests try.
 *
 * kernel_cases.h includes it, behind what makes one case (add_matmul, add_conv, add_blocks). In: machines that force a schedule
 * (one_block_90a, ..). Out: add_rounded() .. add_float8(), which add their cases to `cases`.
 */

/* Convolutions of halves that are rounded as they are read (CY_NONE: they are not), into halves whose maxima are stored: for each image,
 * where there are several. */
static void add_rounded_conv(const conv_row *r, cy_dtype rounded, cy_cuda_machine *machine) {
  static const integers ints = {CY_I8, false, 0};
  bool rounds = rounded != CY_NONE;
  add_conv(r, rounds ? &ints : NULL);
  kernel_case *q = &cases[ncases - 1];
  cy_kernel *k = cy_kernel_create(g, "rounded"), *plain = q->k;
  cy_contraction *c = cy_kernel_contraction(k);
  *c = *cy_kernel_contraction(plain);
  c->nout_vars = 0;
  c->a = cy_kernel_add_arg(k, CY_ARG_READ, CY_F16, 0);
  c->b = cy_kernel_add_arg(k, CY_ARG_READ, rounds ? CY_I8 : CY_F16, 0);
  cy_karg y = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_F16, 0);
  if (rounds)
    c->a_max = cy_kernel_add_arg(k, CY_ARG_READ, CY_I32, 0);
  cy_karg most = cy_kernel_add_arg(k, CY_ARG_WRITE, CY_I32, 0);
  c->a_rounded = rounded;
  c->a_steps = rounded == CY_U8 ? 255 : 127;
  c->a_max_step = rounds && r->images > 1;
  c->acc = cy_kernel_add_local(k, rounds ? CY_I32 : CY_F32);
  cy_expr at = cy_x_index(k, 0);
  for (int i = 0; i < cy_kernel_contraction(plain)->nout_vars; i++) {
    cy_dim extent = cy_kernel_var(plain, cy_kernel_contraction(plain)->out_var[i])->extent;
    out_var(k, c, extent);
    at = sum(k, cy_x_bin(k, CY_OP_mul, at, cy_x_dim(k, extent)), var(k, c->out_var[i]));
  }
  cy_expr v = cy_x_bin(k, CY_OP_mul, cy_x_cast(k, cy_x_local(k, c->acc), CY_F32), f32(k, 1.0 / 64));
  cy_expr half = cy_x_cast(k, v, CY_F16), size = cy_x_un(k, CY_OP_abs, cy_x_cast(k, half, CY_F32));
  cy_kernel_store(k, y, at, half);
  cy_kernel_store_max(k, most, r->images > 1 ? var(k, c->out_var[0]) : cy_x_index(k, 0),
                      cy_x_op(k, CY_OP_bitcast, CY_I32, &size, 1));
  snprintf(q->what, sizeof q->what, "conv %s %s %d -> %d of %d%s", rounds ? "rounded" : "maxima",
           cy_dtype_of(rounds ? rounded : CY_F16)->name, (int)r->channels_in, (int)r->channels_out,
           (int)r->images, machine == &three_blocks ? " shared" : machine == &one_block_in_turns ? " in turns" : "");
  q->k = k;
  q->machine.state = machine;
  q->before = 1;
  q->ints = false;
  q->lo = rounded == CY_U8 ? 0 : -2;
  q->hi = 2;
  q->elems[2] = q->elems[3];
  q->elems[3] = q->elems[4] = r->images;
  if (!rounds)
    q->elems[4] = 0;
}

static void add_rounded(void) {
  static const conv_row rows[] = {
      {CY_CONTRACT_CONV, 2, 32, 24, 1, 2, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_I8},
      {CY_CONTRACT_CONV, 1, 16, 40, 1, 2, {12, 9}, {1, 1}, {2, 1}, {1, 1}, {0, 0}, false, CY_I8},
      {CY_CONTRACT_CONV, 3, 64, 136, 1, 2, {9, 9}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false, CY_I8},
      {CY_CONTRACT_CONV, 1, 80, 72, 1, 2, {7, 9}, {3, 2}, {2, 1}, {1, 2}, {1, 0}, false, CY_I8},
  };
  for (size_t i = 0; i < CHECK_COUNT(rows); i++)
    add_rounded_conv(&rows[i], i % 2 ? CY_I8 : CY_U8, &one_block);
  static const conv_row few = {CY_CONTRACT_CONV, 2, 128, 16, 1, 2, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_I8};
  add_rounded_conv(&few, CY_I8, &three_blocks);
  static const conv_row plain = {CY_CONTRACT_CONV, 3, 64, 136, 1, 2, {15, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F16};
  static cy_cuda_machine *const machines[] = {&one_block, &one_block_90a, &one_block_in_turns};
  for (size_t i = 0; i < CHECK_COUNT(machines); i++)
    add_rounded_conv(&plain, CY_NONE, machines[i]);
}

static void add_integers(void) {
  static const struct {
    matmul_row row;
    integers ints;
  } products[] = {
      {{1, 37, 41, 50, false, false, false, CY_I8, CY_I32, false, false}, {CY_I8, false, 0}},
      {{1, 130, 136, 96, false, true, false, CY_U8, CY_I32, false, true}, {CY_I8, true, 0}},
      {{1, 70, 72, 131, false, true, false, CY_U8, CY_I32, false, false}, {CY_U8, true, 1}},
      {{3, 33, 66, 48, false, false, false, CY_I8, CY_I32, false, false}, {CY_U8, true, 2}},
      {{2, 40, 70, 100, true, true, true, CY_I8, CY_I32, false, true}, {CY_I8, false, 2}},
      {{1, 200, 136, 208, false, true, false, CY_I8, CY_I32, false, true}, {CY_I8, false, 0}},
      {{1, 130, 60, 150, false, true, false, CY_U8, CY_I32, false, true}, {CY_U8, true, 2}},
      {{3, 60, 70, 64, false, true, true, CY_I8, CY_I32, false, true}, {CY_U8, true, 1}},
      {{1, 20, 30, 40, false, true, false, CY_I16, CY_I32, false, false}, {CY_I8, true, 2}},
      {{1, 66, 72, 112, false, true, false, CY_U8, CY_I32, false, false}, {CY_U8, false, 0}},
  };
  for (size_t i = 0; i < CHECK_COUNT(products); i++)
    add_matmul(&products[i].row, &products[i].ints);
  static const struct {
    conv_row row;
    integers ints;
  } convs[] = {
      {{CY_CONTRACT_CONV, 2, 3, 20, 1, 2, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_U8}, {CY_I8, true, 0}},
      {{CY_CONTRACT_CONV, 1, 32, 70, 1, 2, {9, 9}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, false, CY_U8}, {CY_I8, true, 0}},
      {{CY_CONTRACT_CONV, 1, 16, 24, 1, 2, {12, 6}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false, CY_I8}, {CY_I8, false, 0}},
      {{CY_CONTRACT_CONV, 1, 20, 12, 1, 2, {7, 6}, {1, 1}, {2, 1}, {1, 1}, {1, 1}, false, CY_I8}, {CY_U8, true, 1}},
      {{CY_CONTRACT_CONV, 1, 16, 24, 2, 2, {7, 7}, {3, 2}, {2, 1}, {1, 2}, {1, 0}, true, CY_U8}, {CY_U8, true, 2}},
      {{CY_CONTRACT_CONV, 2, 3, 40, 1, 2, {9, 70}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, true, CY_U8}, {CY_I8, true, 0}},
      {{CY_CONTRACT_CONV_TRANSPOSE, 1, 6, 10, 1, 2, {5, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, CY_U8},
       {CY_I8, true, 0}},
      {{CY_CONTRACT_CONV_TRANSPOSE, 1, 24, 40, 2, 2, {5, 6}, {4, 3}, {2, 2}, {1, 2}, {1, 1}, false, CY_I8},
       {CY_U8, true, 2}},
      {{CY_CONTRACT_CONV_TRANSPOSE, 1, 8, 20, 2, 2, {6, 6}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, false, CY_I16},
       {CY_I8, true, 2}},
      {{CY_CONTRACT_CONV, 1, 32, 12, 1, 2, {14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_I8}, {CY_I8, true, 0}},
      {{CY_CONTRACT_CONV, 1, 32, 28, 1, 2, {14, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_U8}, {CY_I8, true, 1}},
      {{CY_CONTRACT_CONV, 1, 8, 20, 2, 2, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_I16}, {CY_I8, true, 2}},
      {{CY_CONTRACT_CONV, 1, 32, 36, 1, 2, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_U8}, {CY_U8, true, 0}},
      {{CY_CONTRACT_CONV, 2, 20, 24, 1, 2, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_U8}, {CY_I8, true, 1}},
      {{CY_CONTRACT_CONV, 1, 22, 24, 1, 2, {7, 9}, {1, 1}, {2, 1}, {1, 1}, {0, 0}, false, CY_I8}, {CY_I8, false, 0}},
      {{CY_CONTRACT_CONV, 1, 48, 28, 1, 2, {7, 9}, {1, 3}, {1, 1}, {1, 1}, {0, 1}, false, CY_I8}, {CY_U8, false, 2}},
  };
  for (size_t i = 0; i < CHECK_COUNT(convs); i++)
    add_conv(&convs[i].row, &convs[i].ints);
}

/* By tensor maps: all directions, cut off at all ends, more steps than stages. */
static void add_tensors(void) {
  static const struct {
    matmul_row row;
    integers ints;
  } products[] = {
      {{1, 136, 136, 136, false, false, false, CY_F16, CY_F32, false, true}, {0}},
      {{1, 72, 264, 328, false, true, true, CY_BF16, CY_F32, false, true}, {0}},
      {{1, 72, 136, 136, true, false, false, CY_F16, CY_F32, false, true}, {0}},
      {{2, 128, 136, 128, true, true, false, CY_BF16, CY_F32, false, true}, {0}},
      {{1, 136, 136, 272, false, true, false, CY_I8, CY_I32, false, true}, {CY_I8, false, 0}},
      {{1, 72, 264, 656, false, true, true, CY_U8, CY_I32, false, true}, {CY_I8, true, 0}},
      {{2, 128, 136, 256, false, true, false, CY_I8, CY_I32, false, true}, {CY_U8, false, 2}},
      {{1, 80, 136, 288, false, true, false, CY_U8, CY_I32, false, true}, {CY_U8, true, 1}},
      {{1, 90, 136, 272, false, true, false, CY_U8, CY_I32, false, true}, {CY_U8, false, 0}},
      /* pairs of tiles below and beside each other, both ways round; odd numbers of tiles */
      {{2, 192, 264, 128, true, true, false, CY_F16, CY_F32, false, true}, {0}},
      {{1, 72, 264, 136, true, false, false, CY_F16, CY_F32, false, true}, {0}},
      {{1, 2056, 136, 136, false, true, false, CY_BF16, CY_F32, false, true}, {0}},
      {{1, 72, 4104, 136, false, true, false, CY_F16, CY_F32, false, true}, {0}},
      /* TF32: both factors have rows of k */
      {{1, 136, 136, 136, false, true, false, CY_F32, CY_F32, true, true}, {0}},
      {{2, 192, 264, 68, false, true, true, CY_F32, CY_F32, true, true}, {0}},
      /* narrower tiles */
      {{1, 136, 72, 264, false, false, true, CY_F16, CY_F32, false, true}, {0}},
      {{1, 136, 40, 136, true, true, false, CY_BF16, CY_F32, false, true}, {0}},
      {{1, 72, 48, 136, false, false, false, CY_F16, CY_F32, false, true}, {0}},
      {{1, 300, 64, 1096, false, true, ROWS, CY_F16, CY_F32, false, true}, {0}},
      {{2, 136, 40, 272, false, true, false, CY_I8, CY_I32, false, true}, {CY_U8, true, 1}},
      {{1, 72, 104, 288, false, true, false, CY_U8, CY_I32, false, true}, {CY_I8, false, 2}},
  };
  for (size_t i = 0; i < CHECK_COUNT(products); i++) {
    add_matmul(&products[i].row, cy_dtype_is_float(products[i].row.in) ? NULL : &products[i].ints);
    cases[ncases - 1].machine.state = &one_block_90a;
  }
  /* patches of lines, pictures and several images, cut off at all ends; strides, dilations, one to three axes */
  static const struct {
    conv_row row;
    integers ints;
  } convs[] = {
      {{CY_CONTRACT_CONV, 1, 64, 33, 1, 2, {15, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F16}, {0}},
      {{CY_CONTRACT_CONV, 2, 48, 40, 1, 2, {15, 14}, {3, 2}, {2, 1}, {1, 2}, {1, 1}, false, CY_BF16}, {0}},
      {{CY_CONTRACT_CONV, 7, 64, 136, 1, 2, {4, 4}, {1, 3}, {1, 1}, {1, 1}, {0, 1}, false, CY_F16}, {0}},
      {{CY_CONTRACT_CONV, 1, 128, 40, 1, 1, {200}, {3}, {1}, {2}, {2}, false, CY_BF16}, {0}},
      {{CY_CONTRACT_CONV, 1, 64, 36, 1, 3, {2, 7, 16}, {2, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 0, 0}, false, CY_F16}, {0}},
      {{CY_CONTRACT_CONV, 1, 96, 136, 1, 2, {13, 25}, {1, 1}, {2, 2}, {1, 1}, {0, 1}, false, CY_F16}, {0}},
      {{CY_CONTRACT_CONV, 2, 48, 40, 1, 2, {15, 14}, {3, 2}, {2, 1}, {1, 2}, {1, 1}, false, CY_F32}, {0}},
      {{CY_CONTRACT_CONV, 1, 112, 36, 1, 2, {7, 13}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false, CY_I8}, {CY_I8, false, 0}},
      {{CY_CONTRACT_CONV, 1, 128, 40, 1, 2, {15, 15}, {2, 1}, {1, 1}, {2, 1}, {1, 0}, false, CY_U8}, {CY_I8, false, 2}},
      {{CY_CONTRACT_CONV, 1, 144, 40, 1, 2, {9, 15}, {1, 2}, {1, 1}, {1, 1}, {0, 1}, false, CY_I8}, {CY_U8, false, 1}},
      {{CY_CONTRACT_CONV, 1, 160, 36, 1, 2, {9, 15}, {2, 1}, {1, 1}, {1, 1}, {1, 0}, false, CY_U8}, {CY_U8, false, 0}},
  };
  for (size_t i = 0; i < CHECK_COUNT(convs); i++) {
    add_conv(&convs[i].row, cy_dtype_is_float(convs[i].row.dtype) ? NULL : &convs[i].ints);
    cases[ncases - 1].machine.state = &one_block_90a;
    if (convs[i].row.dtype == CY_F32)
      allow_tf32(&cases[ncases - 1], convs[i].row.channels_in * 4); /* taps that are inside */
  }
}

/* The case at hand is of floats, whatever `integers` made of it. */
static void of_floats(cy_cuda_machine *machine) {
  kernel_case *q = &cases[ncases - 1];
  q->machine.state = machine;
  q->ints = false;
  q->lo = q->hi = 0;
  q->rtol = q->atol = 1e-3;
}

/* Warpgroups that multiply in turns: one tile, whose block leaves the other warpgroup without work; odd numbers of tiles; of
 * more steps of k than stages, and of fewer; tiles one below the other, side by side and alone; batches, shares of k that only
 * the run tells (then there is one), what epilogues read. */
static void add_pingpong(void) {
  static const matmul_row products[] = {
      {1, 130, 72, 1096, false, true, false, CY_F16, CY_F32, false, true},
      {1, 301, 264, 200, false, false, false, CY_F16, CY_F32, false, RESIDUAL},
      {2, 200, 304, 136, true, true, false, CY_BF16, CY_F32, false, RESIDUAL},
      {3, 104, 264, 456, true, false, false, CY_F16, CY_F32, false, true},
      {1, 2060, 136, 136, false, true, false, CY_BF16, CY_F32, false, true},
      {1, 100, 2184, 136, false, true, false, CY_F16, CY_F32, false, true},
      {5, 136, 40, 68, false, true, true, CY_F32, CY_F32, true, RESIDUAL},
      {1, 400, 64, 1096, false, true, ROWS, CY_F16, CY_F32, false, true},
      {2, 136, 144, 1040, false, true, false, CY_F8E4M3FN, CY_F32, false, RESIDUAL},
  };
  static const conv_row convs[] = {
      {CY_CONTRACT_CONV, 3, 64, 137, 1, 2, {15, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, CY_F16},
      {CY_CONTRACT_CONV, 5, 48, 44, 1, 2, {15, 14}, {3, 2}, {2, 1}, {1, 2}, {1, 1}, false, CY_BF16}};
  for (size_t i = 0; i < CHECK_COUNT(products); i++) {
    add_matmul(&products[i], NULL);
    cases[ncases - 1].machine.state = &one_block_in_turns;
  }
  for (size_t i = 0; i < CHECK_COUNT(convs); i++) {
    add_conv(&convs[i], NULL);
    cases[ncases - 1].machine.state = &one_block_in_turns;
  }
}

/* Floats of 8 bits: both types, either by the other; whole chunks or not, both ways round, shares of k, several tiles; by
 * warpgroups and by tensor maps; convolutions. */
#define E4 CY_F8E4M3FN
#define E5 CY_F8E5M2
static void add_float8(void) {
  static const struct {
    matmul_row row;
    integers ints;
    cy_cuda_machine *machine;
  } products[] = {
      {{1, 37, 41, 50, false, false, false, E4, CY_F32, false, false}, {E4, false, 0}, &one_block_89},
      {{1, 130, 136, 96, false, true, false, E5, CY_F32, false, true}, {E4, false, 0}, &one_block_89},
      {{1, 70, 72, 131, false, true, false, E4, CY_F32, false, false}, {E5, false, 0}, &one_block_89},
      {{2, 40, 70, 100, true, true, true, E5, CY_F32, false, true}, {E5, false, 0}, &one_block_89},
      {{1, 34, 64, 700, false, true, ROWS, E4, CY_F32, false, false}, {E4, false, 0}, &one_block_89},
      {{3, 200, 136, 208, false, true, false, E4, CY_F32, false, true}, {E4, false, 0}, &one_block_89},
      {{1, 136, 136, 272, false, true, false, E4, CY_F32, false, true}, {E4, false, 0}, &one_block_90a},
      {{2, 128, 136, 256, false, true, false, E5, CY_F32, false, true}, {E4, false, 0}, &one_block_90a},
      {{1, 72, 104, 288, false, true, true, E4, CY_F32, false, true}, {E5, false, 0}, &one_block_90a},
      {{1, 300, 64, 1104, false, true, ROWS, E5, CY_F32, false, true}, {E5, false, 0}, &one_block_90a},
      {{1, 130, 60, 150, false, true, false, E4, CY_F32, false, true}, {E4, false, 0}, &one_block_90a},
  };
  for (size_t i = 0; i < CHECK_COUNT(products); i++) {
    add_matmul(&products[i].row, &products[i].ints);
    of_floats(products[i].machine);
  }
  static const struct {
    conv_row row;
    integers ints;
    cy_cuda_machine *machine;
  } convs[] = {
      {{CY_CONTRACT_CONV, 2, 3, 20, 1, 2, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, E4},
       {E4, false, 0},
       &one_block_89},
      {{CY_CONTRACT_CONV, 1, 32, 70, 1, 2, {9, 9}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, false, E5},
       {E4, false, 0},
       &one_block_89},
      {{CY_CONTRACT_CONV, 1, 16, 24, 1, 2, {7, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, true, E4},
       {E5, false, 0},
       &one_block_89},
      {{CY_CONTRACT_CONV, 1, 128, 40, 1, 2, {15, 15}, {2, 1}, {1, 1}, {2, 1}, {1, 0}, false, E4},
       {E4, false, 0},
       &one_block_90a},
      {{CY_CONTRACT_CONV, 2, 3, 40, 1, 2, {9, 70}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, true, E4},
       {E4, false, 0},
       &one_block_90a},
  };
  for (size_t i = 0; i < CHECK_COUNT(convs); i++) {
    add_conv(&convs[i].row, &convs[i].ints);
    of_floats(convs[i].machine);
  }
}
#undef E4
#undef E5
