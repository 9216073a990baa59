/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which generation of the reference's C library llm_capi.h and llm_engine.h are read as. Names stay, but
 * results grow and parameters change, and nothing in a call tells which is meant: a library serves one
 * generation (README.md), and a program defines LLM_CAPI_GENERATION as the library that it links has it.
 */
#pragma once

#define LLM_CAPI_PLAIN 1      /* 0.9.0, llm_pipeline.h, and results without ranks */
#define LLM_CAPI_RANKS 2      /* results with data-parallel ranks; LoRA adapters by name */
#define LLM_CAPI_NAMESPACES 3 /* results with a cache namespace; events of an endpoint */

#ifndef LLM_CAPI_GENERATION
#define LLM_CAPI_GENERATION LLM_CAPI_RANKS
#endif
