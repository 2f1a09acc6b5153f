import { expect, test } from 'vitest'
import { refusedNames } from '../../../src/sql/names-table'
import type { ServerError } from '../../../src/sql/sqlstate'

const refusal = (parts: Partial<ServerError>): ServerError =>
  Object.assign(new Error('any'), { code: '23505', constraint: 'names_unique_index', detail: '[]', ...parts })

test('what the triggers refuse is read from the detail', () => {
  const detail = '[{"of": [0.30000000000000004], "key": ["1234567890123456789", 7, "a\\"b"], "state": "held"}]'
  expect(refusedNames(refusal({ detail }), { index: 'names_unique_index' })).toEqual([
    { of: [0.300_000_000_000_000_04], key: ['1234567890123456789', 7, 'a"b'], state: 'held' },
  ])
})

test.each([
  ['another index', { constraint: 'other' }],
  ['another state', { code: '23503' }],
  ['a detail of the server', { detail: 'Key (namespace, text_hash)=(…) already exists.' }],
  ['a detail that is cut', { detail: '[{"of": [1' }],
  ['none', { detail: undefined }],
])('%s is not of the triggers', (_, parts) => {
  expect(refusedNames(refusal(parts as Partial<ServerError>), { index: 'names_unique_index' })).toEqual([])
})
