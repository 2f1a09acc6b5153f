import { subscribe } from 'node:diagnostics_channel'
import { collectDefaultMetrics, Histogram, register } from 'prom-client'
import type { OperationEvent } from 'typeorm-unique-text'

collectDefaultMetrics()

const seconds = new Histogram({
  name: 'unique_text_operation_seconds',
  help: 'Duration of the operations of typeorm-unique-text',
  labelNames: ['operation', 'entity', 'code'],
})

// An event holds names, counts and a duration, but never a text.
subscribe('tracing:typeorm-unique-text:operation:asyncEnd', (message) => {
  const { operation, entity, milliseconds, error } = message as OperationEvent
  seconds.observe({ operation, entity, code: error?.code ?? 'OK' }, milliseconds / 1_000)
})

export { register as metrics }
