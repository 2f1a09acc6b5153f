import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { parseSync } from 'vite'

/** What the tests of the architecture look at. */
export interface SourceFile {
  /** Its path without `.ts`. */
  readonly name: string
  readonly layer: string
  /** As they are written; of types too. */
  readonly imports: readonly string[]
  /** What it imports by name, and what it exports from elsewhere; of types too. */
  readonly names: readonly ImportedName[]
  /** What it declares and exports; of types too. */
  readonly exports: readonly string[]
  /** String literals and templates, no comments. */
  readonly strings: readonly string[]
  readonly lines: number
  /** Those that have a name: declarations, methods, and functions that a constant or a property holds. */
  readonly functions: readonly SourceFunction[]
}

export interface ImportedName {
  readonly from: string
  /** As it is called there; `*` for all. */
  readonly name: string
  /** undefined: it is not exported. */
  readonly exportedAs: string | undefined
}

export interface SourceFunction {
  readonly name: string
  /** Without blank lines and comments. */
  readonly lines: number
}

/** Every TypeScript file below a folder. */
export async function readSource(source: string): Promise<SourceFile[]> {
  const entries = await readdir(source, { recursive: true })
  const paths = entries.map((entry) => entry.replaceAll(path.sep, '/')).filter((entry) => /\.m?ts$/u.test(entry))
  return await Promise.all(paths.sort().map((file) => readSourceFile(source, file)))
}

async function readSourceFile(source: string, file: string): Promise<SourceFile> {
  const imports: string[] = []
  const names: ImportedName[] = []
  const exports: string[] = []
  const strings: string[] = []
  const functions: SourceFunction[] = []
  const text = await readFile(path.join(source, file), 'utf8')
  const { program, comments } = parseSync(file, text)
  const code = withoutComments(text, comments)
  visit(program, (node) => {
    const name = functionName(node)
    if (name !== undefined)
      functions.push({ name: `${file} ${name}`, lines: linesOf(code.slice(node.start, node.end)) })
    const { type, source: from, argument } = node
    const imported = [from, type === 'TSImportType' ? argument : undefined].filter(isNode)
    for (const { value } of imported) if (typeof value === 'string') imports.push(value)
    names.push(...namesOf(node))
    exports.push(...exportsOf(node))
    if (type === 'Literal' && typeof node['value'] === 'string') strings.push(node['value'])
    // The parts of a template, with something where an expression stands.
    if (type === 'TemplateLiteral') strings.push((node['quasis'] as TemplatePart[]).map(cooked).join('…'))
  })
  // The ESM faces are named apart from the files they stand for.
  return {
    name: file.replace(/\.ts$/u, ''),
    layer: layerOf(file),
    imports,
    names,
    exports,
    strings,
    functions,
    lines: text.split('\n').length - 1,
  }
}

function exportsOf({ type, declaration }: TreeNode): string[] {
  if (type !== 'ExportNamedDeclaration' || !isNode(declaration)) return []
  const { id, declarations } = declaration
  const declared = Array.isArray(declarations) ? declarations.filter(isNode).map((one) => one['id']) : [id]
  return declared.filter(isNode).flatMap(({ name }) => (typeof name === 'string' ? [name] : []))
}

function namesOf({ type, source, specifiers }: TreeNode): ImportedName[] {
  if (!isNode(source) || typeof source['value'] !== 'string') return []
  const from = source['value']
  if (type === 'ExportAllDeclaration') return [{ from, name: '*', exportedAs: '*' }]
  if (!Array.isArray(specifiers)) return []
  return specifiers.filter(isNode).map((one) => {
    const isExport = one.type === 'ExportSpecifier'
    const there = isExport ? one['local'] : one['imported']
    return {
      from,
      name: isNode(there) ? nameOf(there) : '*',
      exportedAs: isExport ? nameOf(one['exported']) : undefined,
    }
  })
}

/** As long as it was, so that positions stay right. */
function withoutComments(text: string, comments: readonly { readonly start: number; readonly end: number }[]): string {
  let code = text
  for (const { start, end } of comments) {
    code = code.slice(0, start) + text.slice(start, end).replaceAll(/[^\n]/gu, ' ') + code.slice(end)
  }
  return code
}

const linesOf = (code: string): number => code.split('\n').filter((line) => line.trim() !== '').length

/** The name under which a node defines a function; undefined where it defines none, or one without a name. */
function functionName({ type, id, key, init, value }: TreeNode): string | undefined {
  if (type === 'FunctionDeclaration') return nameOf(id)
  if (type === 'VariableDeclarator' && isFunction(init)) return nameOf(id)
  if ((type === 'MethodDefinition' || type === 'PropertyDefinition' || type === 'Property') && isFunction(value)) {
    return nameOf(key)
  }
  return undefined
}

const nameOf = (node: unknown): string => (isNode(node) && typeof node['name'] === 'string' ? node['name'] : '?')

const isFunction = (node: unknown): boolean =>
  isNode(node) && ['ArrowFunctionExpression', 'FunctionExpression'].includes(node.type)

/** `index.mts` of a folder belongs to the public names: it only re-exports. */
function layerOf(file: string): string {
  const [folder = '', ...rest] = file.split('/')
  return rest.length > 0 ? folder : folder.replace(/\.m?ts$/u, '')
}

interface TreeNode {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

interface TemplatePart {
  readonly value: { readonly cooked: string }
}

const cooked = ({ value }: TemplatePart): string => value.cooked

function isNode(value: unknown): value is TreeNode {
  return typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string'
}

function visit(node: unknown, see: (node: TreeNode) => void): void {
  if (Array.isArray(node)) for (const item of node) visit(item, see)
  if (!isNode(node)) return
  see(node)
  for (const value of Object.values(node)) visit(value, see)
}
