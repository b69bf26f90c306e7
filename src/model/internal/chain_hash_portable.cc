// HashChain for every processor.
#define XMS_HASH_CHAIN xms_hash_chain_portable
#include "model/internal/chain_hash_body.inc"
