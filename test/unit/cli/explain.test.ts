import { readFileSync } from 'node:fs'
import path from 'node:path'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { explainError } from '../../../src/cli/commands'
import { UsageError } from '../../../src/cli/usage'
import * as errors from '../../../src/errors'

const page = readFileSync(path.join(import.meta.dirname, '../../../docs/errors.md'), 'utf8')

test('explain prints the row of a code, of a class and of an SQLSTATE, without Markdown', () => {
  expect(explainError(page, 'waits_for_itself')).toBe(
    'class: WaitsForItselfError\ncode: WAITS_FOR_ITSELF\nHTTP: 500\nwhat to do: pass the manager, and await the call (recipes)\n',
  )
  expect(explainError(page, 'WaitsForItselfError')).toBe(explainError(page, 'WAITS_FOR_ITSELF'))
  expect(explainError(page, 'UT002')).toMatch(/^SQLSTATE: UT002\nmeaning: a chain is full\nwhat to do: /u)
})

test.each(Object.keys(errors).filter((name) => name.endsWith('Error') && name !== 'UniqueTextError'))(
  'docs/errors.md explains %s',
  (name) => {
    const row = explainError(page, name)
    expect(row).toContain(`class: ${name}\n`)
    const [, code] = /^code: (\w+)$/mu.exec(row) ?? []
    const thrown: unknown = Object.create(errors.UniqueTextError.prototype, { code: { value: code } })
    expect(row).toContain(`HTTP: ${errors.httpStatusOf(thrown)}\n`)
  },
)

test('the handler of docs/errors.md answers an error of this package, and passes every other', () => {
  const [, block = ''] = /<!-- executed: express -->\s+```ts\n(.*?)```/su.exec(page) ?? []
  let handle: (...args: readonly unknown[]) => void = () => expect.unreachable()
  runInNewContext(block, {
    app: { use: (given: typeof handle) => (handle = given) },
    httpStatusOf: errors.httpStatusOf,
  })
  const sent: unknown[] = []
  const response = { status: (status: number) => ({ json: (body: object) => sent.push([status, { ...body }]) }) }
  const given = [new errors.TextTakenError([]), new errors.DeclarationError('no'), new Error('other')]
  for (const error of given) handle(error, {}, response, (passed: unknown) => sent.push(passed))
  expect(sent).toEqual([[409, { code: 'TEXT_TAKEN' }], given[1], given[2]])
})

test('a code that is nearly right is corrected', () => {
  expect(() => explainError(page, 'text_takn')).toThrow(/^Did you mean "TEXT_TAKEN"\? Name one/u)
})

test('an error that the page does not have is a UsageError with the codes', () => {
  expect(() => explainError(page, 'E')).toThrow(UsageError)
  expect(() => explainError(page, undefined)).toThrow(/TEXT_REJECTED, TEXT_TAKEN,.*UT001, UT002, UT003\./u)
})
