// Package channeltest has what a channel is tested with: the scripted doubles (providers that do exactly what a script
// says and log what reached them, in this process or as one of their own), the channels that talk to them, and the
// conformance suite that every channel passes.
//
// The doubles' contracts hold for the doubles only:
//
//   - push recognises a repeated Idempotency-Key: it answers with the original id and sends nothing more. It cannot be
//     asked.
//   - sms ignores the key: every acceptance is one more external send. It can be asked by our reference.
//   - plain neither recognises a key nor can it be asked.
//
// All record acceptance before a scripted delay, hang, reset or cut; a scripted 503, 400, 410 or 429 comes before
// acceptance and proves that nothing was accepted.
package channeltest
