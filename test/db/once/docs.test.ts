import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { formatWithOptions } from 'node:util'
import { runInThisContext } from 'node:vm'
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript'
import { expect, test } from 'vitest'
import { once, OnceToken, tokenOf } from '../../../src/once'
import { printedBy } from '../../package/readme'
import { useDatabase } from '../../support/database'
import { Payment } from '../../support/entities'

const db = useDatabase()
const dataSource = db.useDataSource([Payment, OnceToken])

const document = await readFile(path.resolve(import.meta.dirname, '../../../docs/once.md'), 'utf8')
const EXECUTED = /^<!-- executed: (?<name>\w+) -->\n\s*^```ts\n(?<text>.*?)^```$/gmsu
const blocks = Object.fromEntries(
  [...document.matchAll(EXECUTED)].map(({ groups = {} }) => [groups['name'], groups['text'] ?? '']),
)

/** Runs a block, and returns what it declares under a name. */
async function run(block: string, names: object, declared = 'undefined'): Promise<unknown> {
  const source = `(async ({ ${Object.keys(names).join(', ')} }) => {\n${block}\nreturn ${declared} })`
  const { outputText } = transpileModule(source, {
    compilerOptions: { experimentalDecorators: true, module: ModuleKind.None, target: ScriptTarget.ES2022 },
  })
  return await (runInThisContext(outputText) as (given: object) => Promise<unknown>)(names)
}

test.each(['running', 'failures'])('docs/once.md: the block "%s" prints what it says', async (name) => {
  const text = blocks[name] ?? ''
  const printed: string[] = []
  const console = { log: (...values: unknown[]) => printed.push(formatWithOptions({ colors: false }, ...values)) }
  await run(text, { dataSource, Payment, once, tokenOf, console })
  expect(printed.join('\n')).toBe(printedBy(text))
})

test('docs/once.md has these blocks', () => {
  expect(Object.keys(blocks)).toEqual(['running', 'failures'])
})
