/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scripts of characters, as the pre-tokenizer UnicodeScripts tells them apart: Chinese and Japanese ones
 * are one. Pure and thread safe.
 */
#pragma once

#include <stdint.h>

/* A number for the script; 0: the character goes with any. */
uint8_t scripts_of(uint32_t cp);
