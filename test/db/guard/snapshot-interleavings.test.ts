import { testInterleavings } from './interleavings/play'

testInterleavings(['REPEATABLE READ', 'SERIALIZABLE'])
