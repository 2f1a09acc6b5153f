import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { explain } from '../../../src/cli/explain'
import { UsageError } from '../../../src/cli/usage'
import * as errors from '../../../src/errors'

const page = readFileSync(path.join(import.meta.dirname, '../../../docs/errors.md'), 'utf8')

test('explain prints the row of a code, of a class and of an SQLSTATE, without Markdown', () => {
  expect(explain(page, 'waits_for_itself')).toBe(
    'class: WaitsForItselfError\ncode: WAITS_FOR_ITSELF\nwhat to do: pass the manager, and await the call (recipes)\n',
  )
  expect(explain(page, 'WaitsForItselfError')).toBe(explain(page, 'WAITS_FOR_ITSELF'))
  expect(explain(page, 'UT002')).toMatch(/^SQLSTATE: UT002\nmeaning: a chain is full\nwhat to do: /u)
})

test.each(Object.keys(errors).filter((name) => name.endsWith('Error') && name !== 'UniqueTextError'))(
  'docs/errors.md explains %s',
  (name) => {
    expect(explain(page, name)).toContain(`class: ${name}\n`)
  },
)

test('an error that the page does not have is a UsageError with the codes', () => {
  expect(() => explain(page, 'E')).toThrow(UsageError)
  expect(() => explain(page, undefined)).toThrow(/TEXT_REJECTED, TEXT_TAKEN,.*UT001, UT002, UT003\./u)
})
