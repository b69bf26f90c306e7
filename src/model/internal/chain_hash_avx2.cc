// HashChain for x86 processors with AVX2; compiled with -mavx2.
#define XMS_HASH_CHAIN xms_hash_chain_avx2
#include "model/internal/chain_hash_body.inc"
