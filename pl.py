import sys; sys.path.insert(0,'/tmp/tfp')
import bench,time
n=sys.argv[1]; m,f=bench.feeds(n); l=bench.Lib('/tmp/tfp/so/%s.so'%n,f)
t0=time.time()
while time.time()-t0<float(sys.argv[2]): l.run()
