import { expect, test } from 'vitest'
import { parseRows } from '../../../src/adopt/exact-json'

test.each([
  ['{"id": 9007199254740993}', 1, { id: '9007199254740993' }],
  ['{"id": -9007199254740993, "n": 9007199254740991}', 1, { id: '-9007199254740993', n: 9007199254740991 }],
  ['[[{"id": 90071992547409931}]]', 3, [[{ id: '90071992547409931' }]]],
  ['[{"a": 1.50, "b": 1.5e300, "c": null, "d": true}]', 2, [{ a: 1.5, b: 1.5e300, c: null, d: true }]],
  [
    '{"json": {"id": 10}, "text": "{9007199254740993 \\\\\\" [1"}',
    1,
    { json: { id: 10 }, text: '{9007199254740993 \\" [1' },
  ],
  ['[]', 1, []],
  [
    '{"text": "ends with \\\\", "json": {"n": 9007199254740993}}',
    1,
    { text: 'ends with \\', json: { n: 9007199254740992 } },
  ],
])('%s', (json, depth, rows) => {
  expect(parseRows(json, depth)).toEqual(rows)
})

test.each(['x', '"', '\\'])('a string of 40 MB is read too: %s', (character) => {
  const text = character.repeat(4e7)
  expect((parseRows(JSON.stringify({ text }), 1) as { text: string }).text === text).toBe(true)
})
