import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import ts from 'typescript'
import { expect, test } from 'vitest'

const TESTS = path.resolve(import.meta.dirname, '..')

// toMatchObject() compares the enumerable properties of a RegExp, of which it has none: any text matches.
test('no test gives a RegExp to toMatchObject, which would match every text', async () => {
  const files = (await readdir(TESTS, { recursive: true })).filter((file) => file.endsWith('.ts'))
  const found: string[] = []
  for (const file of files) {
    const source = ts.createSourceFile(
      file,
      await readFile(path.join(TESTS, file), 'utf8'),
      ts.ScriptTarget.Latest,
      true,
    )
    const visit = (node: ts.Node, expected: boolean): void => {
      if (expected && ts.isRegularExpressionLiteral(node)) found.push(`${file}: ${node.text}`)
      if (!ts.isCallExpression(node)) return ts.forEachChild(node, (child) => visit(child, expected))
      const isMatch = ts.isPropertyAccessExpression(node.expression) && node.expression.name.text === 'toMatchObject'
      // A RegExp that another call takes is not compared as it is.
      ts.forEachChild(node, (child) => visit(child, isMatch && child !== node.expression))
    }
    visit(source, false)
  }
  expect(files.length).toBeGreaterThan(300)
  expect(found).toEqual([])
})
