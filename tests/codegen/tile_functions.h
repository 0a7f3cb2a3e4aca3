/* SPDX-License-Identifier: Apache-2.0 */
/* tile_functions.h - AMX in plain C, for running code that was made for it on a CPU without it; for int_gemm_test.c
 * and blocks_test.c.
 *
 * tile_functions_replace() puts the functions below in the place of the instructions in a module. They follow Intel's
 * manual (Software Developer's Manual, volume 2), for tiles of any configuration; what the manual calls an error ends
 * the test. code_for_this_cpu() then makes the module one for the machine at hand.
 */
#ifndef TILE_FUNCTIONS_H
#define TILE_FUNCTIONS_H

#include "contract_jit.h"

static struct {
  uint8_t palette, start, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;
static unsigned char tile_data[8][16][64];

static void tile_check(bool ok, const char *what) {
  if (!ok)
    die("amx", what);
}

static void tile_ldtilecfg(const void *p) {
  memcpy(&tile_config, p, sizeof tile_config);
  memset(tile_data, 0, sizeof tile_data);
  tile_check(tile_config.palette == 1, "palette");
  for (int t = 0; t < 8; t++)
    tile_check(tile_config.rows[t] <= 16 && tile_config.row_bytes[t] <= 64, "size of a tile");
}

static void tile_tilerelease(void) { memset(&tile_config, 0, sizeof tile_config); }

static void tile_tilezero(uint8_t t) {
  tile_check(tile_config.rows[t], "tilezero of a tile that is not configured");
  memset(tile_data[t], 0, sizeof tile_data[t]);
}

static void tile_tileloadd64(uint8_t t, const char *p, int64_t stride) {
  tile_tilezero(t);
  for (int r = 0; r < tile_config.rows[t]; r++)
    memcpy(tile_data[t][r], p + r * stride, tile_config.row_bytes[t]);
}

static void tile_tilestored64(uint8_t t, char *p, int64_t stride) {
  tile_check(tile_config.rows[t], "tilestored of a tile that is not configured");
  for (int r = 0; r < tile_config.rows[t]; r++)
    memcpy(p + r * stride, tile_data[t][r], tile_config.row_bytes[t]);
}

static void tile_multiply(uint8_t c, uint8_t a, uint8_t b, void (*add)(void *sum, const void *a, const void *b)) {
  tile_check(tile_config.rows[c] && tile_config.rows[c] == tile_config.rows[a] &&
                 tile_config.row_bytes[c] == tile_config.row_bytes[b] &&
                 tile_config.row_bytes[a] == 4 * tile_config.rows[b] && c != a && c != b && a != b,
             "tiles that do not fit");
  for (int r = 0; r < tile_config.rows[c]; r++)
    for (int k = 0; k < tile_config.rows[b]; k++)
      for (int n = 0; n < tile_config.row_bytes[c]; n += 4)
        add(tile_data[c][r] + n, tile_data[a][r] + 4 * k, tile_data[b][k] + n);
}

static void add_bytes(void *sum, const void *a, const void *b) {
  int32_t s;
  memcpy(&s, sum, 4);
  for (int i = 0; i < 4; i++)
    s += ((const uint8_t *)a)[i] * ((const int8_t *)b)[i];
  memcpy(sum, &s, 4);
}
static void tile_tdpbusd(uint8_t c, uint8_t a, uint8_t b) { tile_multiply(c, a, b, add_bytes); }

static void add_halves(void *sum, const void *a, const void *b) {
  float s, x, y;
  memcpy(&s, sum, 4);
  for (int i = 0; i < 2; i++) {
    uint32_t u = (uint32_t)((const uint16_t *)a)[i] << 16, v = (uint32_t)((const uint16_t *)b)[i] << 16;
    memcpy(&x, &u, 4);
    memcpy(&y, &v, 4);
    s += x * y;
  }
  memcpy(sum, &s, 4);
}
static void tile_tdpbf16ps(uint8_t c, uint8_t a, uint8_t b) { tile_multiply(c, a, b, add_halves); }

#define TILE_FUNCTION(name)                                                                                            \
  { "llvm.x86." #name, "tile_" #name, (void (*)(void))tile_##name }
static const struct {
  const char *intrinsic, *name;
  void (*function)(void);
} tile_functions[] = {TILE_FUNCTION(ldtilecfg),   TILE_FUNCTION(tilerelease),  TILE_FUNCTION(tilezero),
                      TILE_FUNCTION(tileloadd64), TILE_FUNCTION(tilestored64), TILE_FUNCTION(tdpbusd),
                      TILE_FUNCTION(tdpbf16ps)};
enum { TILE_FUNCTIONS = sizeof tile_functions / sizeof *tile_functions };

/* The instructions of a module become calls; returns how many kinds there were. */
static int tile_functions_replace(LLVMModuleRef module) {
  unsigned immarg = LLVMGetEnumAttributeKindForName("immarg", 6);
  int found = 0;
  for (int i = 0; i < TILE_FUNCTIONS; i++) {
    LLVMValueRef fn = LLVMGetNamedFunction(module, tile_functions[i].intrinsic);
    if (!fn)
      continue;
    found++;
    LLVMSetValueName2(fn, tile_functions[i].name, strlen(tile_functions[i].name));
    for (unsigned p = 1; p <= LLVMCountParams(fn); p++)
      LLVMRemoveEnumAttributeAtIndex(fn, p, immarg);
  }
  return found;
}

/* The module's code is for this machine, whatever it was emitted for. */
static void code_for_this_cpu(cy_cg *cg) {
  char *error = NULL;
  cy_cg *host = cy_cg_create("native", &error);
  if (!host)
    die("native", error);
  cy_cg_module(host, "none"); /* makes the machine */
  LLVMTargetMachineRef other = cg->tm;
  cg->tm = host->tm;
  host->tm = other;
  cy_cg_destroy(host);
  for (LLVMValueRef fn = LLVMGetFirstFunction(cg->module); fn; fn = LLVMGetNextFunction(fn)) {
    LLVMRemoveStringAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "target-cpu", 10);
    LLVMRemoveStringAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "target-features", 15);
  }
}

/* Lets code of the JIT call them. */
static void tile_functions_define(LLVMOrcLLJITRef jit) {
  LLVMOrcCSymbolMapPair pairs[TILE_FUNCTIONS];
  for (int i = 0; i < TILE_FUNCTIONS; i++)
    pairs[i] = (LLVMOrcCSymbolMapPair){
        LLVMOrcLLJITMangleAndIntern(jit, tile_functions[i].name),
        {(LLVMOrcExecutorAddress)(uintptr_t)tile_functions[i].function, {LLVMJITSymbolGenericFlagsExported, 0}}};
  must(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit), LLVMOrcAbsoluteSymbols(pairs, TILE_FUNCTIONS)),
       "define");
}

#endif
